"""Records of `__transaction_state`, byte for byte as Kafka 4.4 writes them.

Key and value each begin with an int16. The key has version 0. The value has version 0 at
`transaction.version` 0, and from 1 on the flexible version 1, whose tags are the previous and the
next producer id and the client's transaction version. A null value is a tombstone.

A transaction that a client of version 2 ends keeps the tags if the level was lowered to 0 in the
middle of it: the end of such a transaction needs them. Kafka cannot write that record, and its
producer fails.

Partitions are sorted. Kafka writes them in the order of a hash map.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from broker.coordinators.txn.states import STATUS, TxnState
from broker.coordinators.txn.transaction import (
    EPOCH_PER_TRANSACTION,
    TopicPartition,
    Transaction,
)
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from runtime.errors import invariant

LEVEL_MAX: Final = 2
"""The highest `transaction.version`."""

_KEY_VERSION: Final = 0
_VALUE_VERSION_MAX: Final = 1
_STATES: Final = {status: state for state, status in STATUS.items()}
_NEVER_WRITTEN: Final = (TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE)


class TransactionRecord(NamedTuple):
    """The state of a transactional id; None removes it."""

    transactional_id: str
    value: Transaction | None


class UnknownVersion(NamedTuple):
    """A record of a later release, which the coordinator skips."""

    part: str
    version: int


def encode_record(record: TransactionRecord, level: int) -> tuple[bytes, bytes | None]:
    """Return the (key, value) bytes at this level of `transaction.version`.

    Raises:
        EncodeError: the transactional id or a topic's name is too long for its field.
    """
    key = _prefixed(
        _KEY_VERSION, encode(TransactionLogKey(transactional_id=record.transactional_id), 0)
    )
    return key, None if record.value is None else _encode_value(record.value, level)


def _encode_value(txn: Transaction, level: int) -> bytes:
    invariant(
        txn.state not in _NEVER_WRITTEN and not (txn.state is TxnState.EMPTY and txn.partitions),
        f"a record cannot have state {txn.state.value} and {len(txn.partitions)} partitions",
    )
    version = 1 if level >= 1 or txn.client_version >= EPOCH_PER_TRANSACTION else 0
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=STATUS[txn.state],
        transaction_partitions=None if txn.state is TxnState.EMPTY else _topics(txn.partitions),
        transaction_last_update_timestamp_ms=txn.update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
    )
    if version >= 1:
        value.previous_producer_id = txn.previous_producer_id
        value.next_producer_id = txn.next_producer_id
        value.client_transaction_version = txn.client_version
    return _prefixed(version, encode(value, version))


def _topics(partitions: Iterable[TopicPartition]) -> list[TransactionLogValue.PartitionsSchema]:
    return [
        TransactionLogValue.PartitionsSchema(
            topic=topic, partition_ids=[each.partition for each in of_topic]
        )
        for topic, of_topic in groupby(sorted(partitions), attrgetter("topic"))
    ]


def parse_record(key: bytes, value: bytes | None) -> TransactionRecord | UnknownVersion:
    """Return the content of a record.

    Raises:
        ProtocolError: the bytes of a known version cannot be parsed, or no coordinator could have
            written such a state.
    """
    version = _prefix(key)
    if version != _KEY_VERSION:
        return UnknownVersion("key", version)
    parsed, _ = decode(TransactionLogKey, key, 0, 2)
    if value is None:
        return TransactionRecord(parsed.transactional_id, None)
    version = _prefix(value)
    if not 0 <= version <= _VALUE_VERSION_MAX:
        return UnknownVersion("value", version)
    message, _ = decode(TransactionLogValue, value, version, 2)
    return TransactionRecord(parsed.transactional_id, _transaction(message))


def _transaction(message: TransactionLogValue) -> Transaction:
    status, client_version = message.transaction_status, message.client_transaction_version
    state = _STATES.get(status)
    if state is None or state in _NEVER_WRITTEN:
        raise ProtocolError("transaction status", status, "0 to 5")
    if not 0 <= client_version <= LEVEL_MAX:
        raise ProtocolError("client transaction version", client_version, f"0 to {LEVEL_MAX}")
    topics = [] if state is TxnState.EMPTY else message.transaction_partitions
    if topics is None:
        raise ProtocolError("transaction partitions", None, f"a list in state {state.value}")
    return Transaction(
        producer_id=message.producer_id,
        epoch=message.producer_epoch,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        update_ms=message.transaction_last_update_timestamp_ms,
        start_ms=message.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(each.topic, index) for each in topics for index in each.partition_ids
        ),
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
        client_version=client_version,
    )


def _prefixed(version: int, data: bytes) -> bytes:
    return version.to_bytes(2, "big") + data


def _prefix(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError(f"transaction record of {len(data)} bytes without a version")
    return int.from_bytes(data[:2], "big", signed=True)
