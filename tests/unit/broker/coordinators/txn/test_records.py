"""Records of `__transaction_state`, against bytes that were put together by hand from Kafka's
schema."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.txn.records import (
    TransactionRecord,
    UnknownVersion,
    encode_record,
    parse_record,
)
from broker.coordinators.txn.states import TxnState
from broker.coordinators.txn.transaction import TopicPartition, Transaction
from protocol.codec import decode
from protocol.errors import EncodeError, ProtocolError
from protocol.internal.transaction_log import TransactionLogValue
from runtime.errors import InvariantViolated
from tests.unit.broker.coordinators.txn.values import A0, A1, B0, P, transaction

KEY = b"\x00\x00" + b"\x00\x03tid"
ID = "tid"
PARTITIONS = frozenset({B0, A1, A0})


def classic(status: int, partitions: bytes) -> bytes:
    """Return a value of version 0."""
    head = struct.pack(">hqhib", 0, P, 7, 30_000, status)
    return head + partitions + struct.pack(">qq", 50_000, 49_000)


def flexible(status: int, partitions: bytes, tags: bytes) -> bytes:
    """Return a value of version 1."""
    head = struct.pack(">hqhib", 1, P, 7, 30_000, status)
    return head + partitions + struct.pack(">qq", 50_000, 49_000) + tags


CLASSIC_TOPICS = (
    b"\x00\x00\x00\x02"
    + (b"\x00\x01a" + struct.pack(">iii", 2, 0, 1))
    + (b"\x00\x01b" + struct.pack(">ii", 1, 0))
)
FLEXIBLE_TOPICS = (
    b"\x03"
    + (b"\x02a\x03" + struct.pack(">ii", 0, 1) + b"\x00")
    + (b"\x02b\x02" + struct.pack(">i", 0) + b"\x00")
)
PREVIOUS = b"\x00\x08" + struct.pack(">q", P)
NEXT = b"\x01\x08" + struct.pack(">q", 2_000)
CLIENT = b"\x02\x02" + struct.pack(">h", 2)


@pytest.mark.parametrize(
    ("state", "level", "fields", "value"),
    [
        (TxnState.EMPTY, 0, {}, classic(0, b"\xff\xff\xff\xff")),
        (TxnState.ONGOING, 0, {"partitions": PARTITIONS}, classic(1, CLASSIC_TOPICS)),
        (TxnState.COMPLETE_COMMIT, 0, {}, classic(4, b"\x00\x00\x00\x00")),
        (TxnState.EMPTY, 1, {}, flexible(0, b"\x00", b"\x01" + PREVIOUS)),
        (TxnState.EMPTY, 2, {"previous_producer_id": -1}, flexible(0, b"\x00", b"\x00")),
        (
            TxnState.PREPARE_ABORT,
            2,
            {"partitions": PARTITIONS, "client_version": 2, "next_producer_id": 2_000},
            flexible(3, FLEXIBLE_TOPICS, b"\x03" + PREVIOUS + NEXT + CLIENT),
        ),
        (
            TxnState.COMPLETE_ABORT,
            2,
            {"client_version": 2},
            flexible(5, b"\x01", b"\x02" + PREVIOUS + CLIENT),
        ),
    ],
)
def test_record_has_the_bytes_of_its_level(
    state: TxnState, level: int, fields: dict[str, object], value: bytes
) -> None:
    times = {"update_ms": 50_000, "start_ms": 49_000}
    txn = transaction(state, **{**times, **fields})
    assert encode_record(TransactionRecord(ID, txn), level) == (KEY, value)
    expected = txn if level else txn._replace(previous_producer_id=-1)
    assert parse_record(KEY, value) == TransactionRecord(ID, expected)


def test_record_of_a_transaction_begun_at_level_2_keeps_its_tags_at_level_0() -> None:
    """KAFKA-18227: the level changes in mid-transaction; the next producer id must not be lost."""
    txn = transaction(TxnState.PREPARE_COMMIT, client_version=2, next_producer_id=2_000)
    assert encode_record(TransactionRecord(ID, txn), 0) == encode_record(
        TransactionRecord(ID, txn), 2
    )


def test_record_has_each_topic_once_with_its_partitions_in_order() -> None:
    partitions = [TopicPartition(f"t{n % 7}", n // 7) for n in range(70)]
    txn = transaction(partitions=frozenset(partitions))
    _, value = encode_record(TransactionRecord(ID, txn), 0)
    assert value is not None
    message, _ = decode(TransactionLogValue, value, 0, 2)
    topics = [(one.topic, one.partition_ids) for one in message.transaction_partitions or ()]
    assert topics == [(f"t{n}", list(range(10))) for n in range(7)]


def test_tombstone_has_no_value() -> None:
    assert encode_record(TransactionRecord(ID, None), 2) == (KEY, None)
    assert parse_record(KEY, None) == TransactionRecord(ID, None)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\x00\x01rest", b"\x00\x00", UnknownVersion("key", 1)),
        (b"\xff\xff", None, UnknownVersion("key", -1)),
        (KEY, b"\x00\x02rest", UnknownVersion("value", 2)),
        (KEY, b"\xff\xffrest", UnknownVersion("value", -1)),
    ],
)
def test_record_of_a_later_version_is_recognised(
    key: bytes, value: bytes | None, expected: UnknownVersion
) -> None:
    assert parse_record(key, value) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b""),
        (b"\x00\x00\x00\x09tid", None),
        (KEY, b"\x00"),
        (KEY, b"\x00\x00short"),
        (KEY, classic(6, b"\x00\x00\x00\x00")),
        (KEY, classic(7, b"\x00\x00\x00\x00")),
        (KEY, classic(8, b"\x00\x00\x00\x00")),
        (KEY, classic(-1, b"\x00\x00\x00\x00")),
        (KEY, classic(1, b"\xff\xff\xff\xff")),
        (KEY, flexible(4, b"\x01", b"\x01\x02\x02\x00\x03")),
    ],
)
def test_unreadable_record_raises_protocol_error(key: bytes, value: bytes | None) -> None:
    """A state that no coordinator writes is as unreadable as broken bytes."""
    with pytest.raises(ProtocolError):
        parse_record(key, value)


def test_record_of_a_transient_state_is_not_written() -> None:
    for txn in (
        transaction(TxnState.DEAD),
        transaction(TxnState.PREPARE_EPOCH_FENCE),
        transaction(TxnState.EMPTY, partitions=frozenset({A0})),
    ):
        with pytest.raises(InvariantViolated):
            encode_record(TransactionRecord(ID, txn), 2)


def test_record_with_a_transactional_id_that_is_too_long_raises_encode_error() -> None:
    with pytest.raises(EncodeError):
        encode_record(TransactionRecord("x" * 32_768, None), 2)


INT64 = st.integers(-1, 2**63 - 1)
TRANSACTIONS = st.builds(
    Transaction,
    producer_id=INT64,
    epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([s for s in TxnState if s.value not in ("Dead", "PrepareEpochFence")]),
    update_ms=INT64,
    start_ms=INT64,
    partitions=st.frozensets(
        st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=9
    ),
    previous_producer_id=INT64,
    next_producer_id=INT64,
    client_version=st.integers(0, 2),
    last_epoch=st.just(-1),
).map(lambda txn: txn._replace(partitions=frozenset()) if txn.state is TxnState.EMPTY else txn)


@given(st.text(max_size=9), TRANSACTIONS, st.integers(1, 2))
def test_parsed_record_is_the_encoded_one(name: str, txn: Transaction, level: int) -> None:
    record = TransactionRecord(name, txn)
    assert parse_record(*encode_record(record, level)) == record


@given(st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_any_bytes_are_parsed_or_raise_protocol_error(key: bytes, value: bytes | None) -> None:
    """No record of the log stops a node."""
    for head in (b"", b"\x00\x00"):
        try:
            parse_record(head + key, value)
        except ProtocolError:
            continue
