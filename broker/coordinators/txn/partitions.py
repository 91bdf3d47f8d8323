"""Partitions of a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and verification (KIP-890).

The client's transaction version follows from the request: a broker adds partitions on behalf of a
client of version 2 (AddPartitionsToTxn 4 and above); older clients add them themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.coordinators.txn.outcome import Changed, Refused, Unchanged
from broker.coordinators.txn.states import PREPARING, TxnEvent, TxnState
from broker.coordinators.txn.transaction import (
    EPOCH_PER_TRANSACTION,
    TopicPartition,
    Transaction,
    is_pending,
)
from protocol.errors import ErrorCode

BY_BROKERS_FROM: Final = 4
"""Version of AddPartitionsToTxn that brokers send; it has several transactions and verify_only."""


def client_version(version: int) -> int:
    """Return the transaction version of the client of an AddPartitionsToTxn. Clients of
    AddOffsetsToTxn have version 0."""
    return EPOCH_PER_TRANSACTION if version >= BY_BROKERS_FROM else 0


def decide_add(
    txn: Transaction | None,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    client_version: int,
    in_flight: bool,
    now_ms: int,
) -> Refused | Unchanged | Changed:
    """Decide the addition of partitions, which starts a transaction if none is open.

    Args:
        in_flight: a record of this transactional id is appended and not committed.
    """
    if txn is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # The pending check is first (KAFKA-18660): the producer may already use the epoch or the
    # producer id that the pending transition leads to.
    if is_pending(txn, in_flight):
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    code = _identity_refusal(txn, producer_id, epoch)
    if code is not None:
        return Refused(code)
    added = txn.partitions.union(partitions)
    if txn.state is TxnState.ONGOING and added == txn.partitions:
        return Unchanged(txn.producer_id, txn.epoch)
    start_ms = txn.start_ms if txn.state is TxnState.ONGOING else now_ms
    after = txn.moved(
        TxnEvent.ADDED, now_ms, partitions=added, start_ms=start_ms, client_version=client_version
    )
    return Changed(after, after.producer_id, after.epoch)


def decide_verify(
    txn: Transaction | None, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition whether the producer's open transaction contains it.

    An append in flight does not matter: the partition's leader checks its own guard when it
    appends.
    """
    code: ErrorCode | None = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    contained: frozenset[TopicPartition] = frozenset()
    if txn is not None:
        contained = txn.partitions
        code = _identity_refusal(txn, producer_id, epoch)
        if code is None and txn.state in PREPARING:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
    return {
        each: code or (ErrorCode.NONE if each in contained else ErrorCode.TRANSACTION_ABORTABLE)
        for each in partitions
    }


def _identity_refusal(txn: Transaction, producer_id: int, epoch: int) -> ErrorCode | None:
    if txn.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    return None
