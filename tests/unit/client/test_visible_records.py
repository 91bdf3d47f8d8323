"""The records of a record set that a consumer returns (KIP-98)."""

from __future__ import annotations

from client.visible_records import visible_records
from protocol.batch import Producer, Record, build_batch, build_end_txn_marker, patch

HERE = ("t", 3)


def batch(offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False) -> bytes:
    producer = Producer(producer_id, 0, 0, transactional) if producer_id >= 0 else Producer()
    records = [Record(timestamp=9, key=b"k", value=value) for value in values]
    return build_batch(records, offset, producer=producer)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    data = bytearray(
        build_end_txn_marker(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=9)
    )
    patch(data, offset, 0)
    return bytes(data)


def seen(records: bytes, position: int = 0, **options: object) -> tuple[list[bytes | None], int]:
    found, after = visible_records(HERE, records, position, **options)  # type: ignore[arg-type]
    return [one.value for one in found], after


def test_visible_record_has_topic_partition_and_offset() -> None:
    (one,), _ = visible_records(HERE, batch(7, b"v"), 7)
    assert one == ("t", 3, 7, 9, b"k", b"v", ())


def test_records_below_the_position_are_passed_over() -> None:
    assert seen(batch(5, b"a", b"b", b"c") + batch(8, b"d"), 6) == ([b"b", b"c", b"d"], 9)


def test_a_batch_that_is_cut_off_is_not_there_yet() -> None:
    assert seen(batch(0, b"a") + batch(1, b"b")[:-1]) == ([b"a"], 1)
    assert seen(b"", 4) == ([], 4)


def test_markers_are_no_records_and_move_the_position() -> None:
    assert seen(marker(0, 5, commit=True)) == ([], 1)


def test_aborted_transactions_end_with_their_marker() -> None:
    records = b"".join(
        (
            batch(0, b"gone", producer_id=5, transactional=True),
            batch(1, b"other", producer_id=6, transactional=True),
            batch(2, b"plain", producer_id=5),
            marker(3, 5, commit=False),
            batch(4, b"kept", producer_id=5, transactional=True),
            marker(5, 5, commit=True),
        )
    )
    assert seen(records) == ([b"gone", b"other", b"plain", b"kept"], 6)
    assert seen(records, aborted=[(5, 0)]) == ([b"other", b"plain", b"kept"], 6)


def test_an_aborted_transaction_that_begins_later_hides_nothing_before() -> None:
    records = batch(0, b"a", producer_id=5, transactional=True) + batch(
        1, b"b", producer_id=5, transactional=True
    )
    assert seen(records, aborted=[(5, 1)]) == ([b"a"], 2)
