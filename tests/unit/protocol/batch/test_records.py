"""Records: building and parsing, broken lengths, varints, control records."""

from __future__ import annotations

import pytest

from protocol.batch import (
    ControlType,
    InvalidRecord,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    build_end_txn_marker,
    control_key,
    crc_ok,
    parse_header,
    read_batch,
    read_control_type,
    read_end_txn_marker,
    read_records,
    rebuild_batch,
)
from protocol.batch.records import read_varint, read_varlong, scan, varint
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode, ProtocolError
from testkit.records.batches import NOW_MS, some_records, with_payload

FULL = [
    Record(timestamp=NOW_MS, key=b"k", value=b"v"),
    Record(timestamp=NOW_MS - 5, key=None, value=None),
    Record(timestamp=NOW_MS + 70_000, key=b"", value=b"x" * 1000),
    Record(
        timestamp=NOW_MS + 1,
        value=b"with headers",
        headers=[("a", b"1"), ("a", None), ("\u00e9", b""), ("", b"y" * 200)],
    ),
]


def numbered(records: list[Record], base: int = 0) -> list[Record]:
    return [
        Record(base + n, record.timestamp, record.key, record.value, record.headers)
        for n, record in enumerate(records)
    ]


def body(*parts: bytes) -> bytes:
    joined = b"".join(parts)
    return varint(len(joined)) + joined


@pytest.mark.parametrize("codec", list(Codec))
def test_round_trip(codec: Codec) -> None:
    batch = build_batch(FULL, 1000, compression=codec)
    assert crc_ok(batch, 0, len(batch))
    assert list(read_records(batch)) == numbered(FULL, 1000)
    assert parse_header(batch).max_timestamp == NOW_MS + 70_000


def test_a_generator_of_records() -> None:
    batch = build_batch(record for record in FULL)
    assert list(read_records(memoryview(batch))) == numbered(FULL)


def test_kept_offsets() -> None:
    records = [Record(105, 1, b"a", b"b"), Record(190, 1, b"a", b"b")]
    batch = build_batch(records, 100, keep_offsets=True)
    assert list(read_records(batch)) == records
    assert parse_header(batch).last_offset == 190


def test_broker_time() -> None:
    batch = build_batch(FULL, log_append_time_ms=NOW_MS + 9)
    assert {record.timestamp for record in read_records(batch)} == {NOW_MS + 9}


def test_header_key_that_is_not_utf8_survives() -> None:
    raw = body(b"\x00\x00\x00\x01\x01\x02", varint(2), b"\xff\xfe", varint(1), b"v")
    batch = with_payload(raw, 1)
    (record,) = read_records(batch)
    again = rebuild_batch(parse_header(batch), [record])
    assert again == batch


def test_equality_and_text() -> None:
    assert Record(1, 2, b"k") != Record(1, 2, b"j")
    assert Record() != "record"
    assert repr(Record(1, 2, b"k", b"v", [("h", b"x")])) == (
        "Record(offset=1, timestamp=2, key=b'k', value=b'v', headers=[('h', b'x')])"
    )


def test_rebuild_keeps_range_and_producer() -> None:
    batch = build_batch(FULL, 50, producer=Producer(9, 1, 5), leader_epoch=4)
    header = parse_header(batch)
    kept = [record for record in read_records(batch) if record.offset in (51, 53)]
    smaller = rebuild_batch(header, kept, compression=Codec.GZIP)
    new = parse_header(smaller)
    assert list(read_records(smaller)) == kept
    assert (new.base_offset, new.last_offset, new.record_count) == (50, 53, 2)
    assert (new.producer_id, new.base_sequence, new.last_sequence) == (9, 5, 8)
    assert new.leader_epoch == 4
    assert crc_ok(smaller, 0, len(smaller))


def test_rebuild_of_an_empty_batch() -> None:
    header = parse_header(build_batch(FULL, 50, producer=Producer(9, 1, 5), compression=Codec.LZ4))
    empty = rebuild_batch(header, [])
    new = parse_header(empty)
    assert list(read_batch(empty, 0, new)) == []
    assert (new.record_count, new.last_offset, new.last_sequence) == (0, 53, 8)
    assert new.max_timestamp == header.max_timestamp
    assert len(empty) == 61


def test_rebuild_with_delete_horizon() -> None:
    batch = build_batch(FULL, 50)
    records = list(read_records(batch))
    marked = rebuild_batch(parse_header(batch), records, delete_horizon_ms=NOW_MS + 999)
    header = parse_header(marked)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 999
    assert list(read_records(marked)) == records


def test_read_rebuild_read_of_an_empty_compressed_batch() -> None:
    empty = rebuild_batch(parse_header(build_batch(FULL, compression=Codec.ZSTD)), [])
    assert list(read_records(empty)) == []


VALUE = b"\x00\x00\x00\x01\x01"  # attributes, deltas, null key, null value

BROKEN = {
    "empty": (b"", 1),
    "record length zero": (varint(0) + bytes(10), 1),
    "record length negative": (varint(-1) + bytes(10), 1),
    "record length beyond the end": (varint(100) + bytes(10), 1),
    "record length one short": (varint(6) + VALUE + varint(0) + b"\x00", 1),
    "record length too long": (varint(8) + VALUE + varint(0) + b"\x00\x00", 1),
    "key beyond the record": (body(b"\x00\x00\x00", varint(50), b"\x01\x00"), 1),
    "key length -2": (body(b"\x00\x00\x00", varint(-2), b"\x01\x00"), 1),
    "value beyond the record": (body(b"\x00\x00\x00\x01", varint(9), b"\x00"), 1),
    "value length -5": (body(b"\x00\x00\x00\x01", varint(-5), b"\x00"), 1),
    "header count negative": (body(VALUE, varint(-1)), 1),
    "header count beyond the record": (body(VALUE, varint(4), b"\x00\x01\x00\x01"), 1),
    "header count huge": (body(VALUE, varint(2**31 - 1)), 1),
    "null header key": (body(VALUE, varint(1), varint(-1), varint(-1)), 1),
    "header key beyond the record": (body(VALUE, varint(1), varint(9), varint(-1)), 1),
    "header value beyond the record": (body(VALUE, varint(1), b"\x02a", varint(9)), 1),
    "bytes after the headers": (body(VALUE, varint(1), b"\x02a", b"\x01", b"\x00"), 1),
    "bytes after no headers": (body(VALUE, varint(0), b"\x00"), 1),
    "varint without end": (body(b"\x00\x00", b"\xff" * 6, b"\x01\x01\x00"), 1),
    "varlong without end": (body(b"\x00", b"\xff" * 11, b"\x00\x01\x01\x00"), 1),
    "fewer records than counted": (body(VALUE, varint(0)), 2),
    "more records than counted": (body(VALUE, varint(0)) * 2, 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_records(name: str) -> None:
    payload, count = BROKEN[name]
    batch = with_payload(payload, count)
    with pytest.raises(InvalidRecord) as read:
        list(read_records(batch))
    with pytest.raises(InvalidRecord) as scanned:
        list(scan(payload, count))
    assert read.value.index == scanned.value.index
    assert str(read.value) == str(scanned.value)


def test_the_index_of_the_broken_record() -> None:
    good = body(VALUE, varint(0))
    with pytest.raises(InvalidRecord) as caught:
        list(scan(good * 3 + varint(99), 5))
    assert caught.value.index == 3


def test_truncated_payload_at_every_byte() -> None:
    payload = build_batch(FULL)[61:]
    assert len(list(scan(payload, len(FULL)))) == len(FULL)
    for length in range(len(payload)):
        with pytest.raises(InvalidRecord):
            list(scan(payload[:length], len(FULL)))
    with pytest.raises(InvalidRecord):
        list(scan(payload + b"\x00", len(FULL)))


def test_decompression_budget_reaches_the_reader() -> None:
    batch = build_batch([Record(value=bytes(100_000))], compression=Codec.ZSTD)
    with pytest.raises(ApiError) as caught:
        list(read_records(batch, budget_bytes=1000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


# --- varints ---------------------------------------------------------------------------------

EDGES = [0, 1, -1, 63, -64, 64, -65, 127, 128, 8191, -8192, 8192, 2**31 - 1, -(2**31)]
LONG_EDGES = [*EDGES, 2**31, -(2**31) - 1, 2**62, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("value", LONG_EDGES)
def test_varlong(value: int) -> None:
    raw = varint(value)
    assert read_varlong(b"\x99" + raw + b"\x00", 1) == (value, 1 + len(raw))
    for length in range(len(raw)):
        with pytest.raises(IndexError):
            read_varlong(raw[:length], 0)


@pytest.mark.parametrize("value", EDGES)
def test_varint(value: int) -> None:
    raw = varint(value)
    assert read_varint(b"\x99" + raw + b"\x00", 1) == (value, 1 + len(raw))
    for length in range(len(raw)):
        with pytest.raises(IndexError):
            read_varint(raw[:length], 0)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_varint_of_33_bits(value: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        read_varint(varint(value), 0)


def test_varlong_of_65_bits() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read_varlong(b"\xff" * 9 + b"\x02", 0)


# --- control records -------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_marker(commit: bool) -> None:
    marker = build_end_txn_marker(
        4000, 3, commit=commit, coordinator_epoch=11, timestamp_ms=NOW_MS, leader_epoch=2
    )
    header = parse_header(marker)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    assert list(read_records(marker)) == []
    (record,) = read_records(marker, include_control=True)
    assert read_end_txn_marker(record) == (commit, 11)


def test_control_batch() -> None:
    batch = build_control_batch(
        [(ControlType.LEADER_CHANGE, b"x"), (ControlType.KRAFT_VOTERS, b"y")],
        40,
        leader_epoch=5,
        timestamp_ms=NOW_MS,
    )
    header = parse_header(batch)
    assert header.is_control
    assert not header.is_transactional
    records = list(read_batch(batch, 0, header))
    assert [read_control_type(record.key) for record in records] == [2, 6]
    assert [record.value for record in records] == [b"x", b"y"]


def test_control_key_of_another_version_or_type() -> None:
    assert read_control_type(b"\x00\x01\x00\x63\x00") == 99
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(ProtocolError):
            read_control_type(key)


def test_broken_end_txn_marker() -> None:
    abort = control_key(ControlType.ABORT)
    for record in (
        Record(key=control_key(ControlType.LEADER_CHANGE), value=bytes(6)),
        Record(key=abort, value=None),
        Record(key=abort, value=bytes(5)),
        Record(key=abort, value=b"\xff\xff\x00\x00\x00\x00"),
    ):
        with pytest.raises(ProtocolError):
            read_end_txn_marker(record)


def test_some_records_are_readable() -> None:
    assert [record.key for record in read_records(build_batch(some_records(2)))] == [b"k0", b"k1"]
