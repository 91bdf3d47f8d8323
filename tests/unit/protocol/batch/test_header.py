"""The batch header: fields, walking, patching, CRC."""

from __future__ import annotations

import pytest

from protocol.batch import (
    HEADER_BYTES,
    CorruptBatch,
    Producer,
    Record,
    TimestampType,
    build_batch,
    crc_ok,
    iter_batches,
    iter_checked,
    parse_header,
    patch,
    read_records,
    set_log_append_time,
    whole_batches_size,
    write_crc,
)
from protocol.batch.header import set_max_timestamp
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from testkit.records.batches import NOW_MS, altered, some_records


def three_batches() -> bytes:
    return b"".join(build_batch(some_records(n), n * 10) for n in (1, 2, 3))


def test_fields() -> None:
    batch = build_batch(
        some_records(3),
        100,
        leader_epoch=7,
        compression=Codec.ZSTD,
        producer=Producer(4000, 3, 17, transactional=True),
    )
    header = parse_header(b"xx" + batch, 2)
    assert header.base_offset == 100
    assert header.last_offset == 102
    assert header.next_offset == 103
    assert header.size_bytes == len(batch)
    assert header.leader_epoch == 7
    assert header.magic == 2
    assert header.compression is Codec.ZSTD
    assert header.codec_id == 4
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.has_producer_id
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, 17)
    assert header.last_sequence == 19
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 2)
    assert header.record_count == 3
    assert header == parse_header(batch)
    assert header != 1
    assert "offsets=100..102" in repr(header)


def test_last_sequence_wraps() -> None:
    batch = build_batch(some_records(3), producer=Producer(1, 0, 2**31 - 2))
    assert parse_header(batch).last_sequence == 0
    assert parse_header(build_batch(some_records(3))).last_sequence == -1


def test_unassigned_codec() -> None:
    header = parse_header(altered(build_batch(some_records()), attributes=6))
    assert header.codec_id == 6
    with pytest.raises(ApiError) as caught:
        _ = header.compression
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_short_header() -> None:
    batch = build_batch(some_records())
    for length in range(HEADER_BYTES):
        with pytest.raises(CorruptBatch):
            parse_header(batch[:length])


def test_walk() -> None:
    data = three_batches()
    found = list(iter_batches(data))
    assert [header.base_offset for header, _ in found] == [10, 20, 30]
    assert [header.record_count for header, _ in found] == [1, 2, 3]
    assert found[1][1] == found[0][0].size_bytes
    assert list(iter_batches(data, found[1][1])) == found[1:]
    assert whole_batches_size(data) == len(data)
    assert whole_batches_size(data, found[1][1]) == len(data) - found[1][1]


def test_walk_of_every_prefix() -> None:
    data = three_batches()
    ends = [pos + header.size_bytes for header, pos in iter_batches(data)]
    for length in range(len(data) + 1):
        expected = [end for end in ends if end <= length]
        assert len(list(iter_batches(memoryview(data)[:length]))) == len(expected)
        assert whole_batches_size(data[:length]) == (expected[-1] if expected else 0)
        records = list(read_records(data[:length]))
        assert len(records) == (0, 1, 3, 6)[len(expected)]


@pytest.mark.parametrize("change", [{"batch_length": 48}, {"batch_length": -1}, {"magic": 1}])
def test_walk_stops_at_what_is_no_batch(change: dict[str, int]) -> None:
    good = build_batch(some_records())
    bad = altered(good, **change, fix_crc=False)
    walk = iter_batches(good + bad + good)
    next(walk)
    with pytest.raises(CorruptBatch):
        next(walk)
    for length in range(17, len(bad)):
        with pytest.raises(CorruptBatch):
            list(iter_batches(bad[:length]))


def test_checked_walk_finds_every_flipped_byte() -> None:
    batch = build_batch(some_records(2))
    assert len(list(iter_checked(batch))) == 1
    for at in range(17, len(batch)):
        broken = bytearray(batch)
        broken[at] ^= 0x40
        assert not crc_ok(broken, 0, len(broken))
        with pytest.raises(CorruptBatch):
            list(iter_checked(broken))


def test_patch_leaves_the_crc_right() -> None:
    buf = bytearray(b"\x00" * 5 + build_batch(some_records(2)))
    patch(memoryview(buf), 2**40, 9, pos=5)
    header = parse_header(buf, 5)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert crc_ok(buf, 5, header.size_bytes)


def test_log_append_time() -> None:
    buf = bytearray(build_batch(some_records(2), compression=Codec.LZ4))
    set_log_append_time(buf, 0, len(buf), NOW_MS + 500)
    header = parse_header(buf)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW_MS + 500
    assert header.compression is Codec.LZ4
    assert crc_ok(buf, 0, len(buf))
    assert {record.timestamp for record in read_records(buf)} == {NOW_MS + 500}


def test_max_timestamp_and_crc() -> None:
    buf = bytearray(build_batch([Record(timestamp=5, value=b"x")]))
    set_max_timestamp(buf, 0, len(buf), 6)
    assert parse_header(buf).max_timestamp == 6
    assert crc_ok(buf, 0, len(buf))
    buf[17] ^= 1
    assert not crc_ok(buf, 0, len(buf))
    write_crc(buf, 0, len(buf))
    assert crc_ok(buf, 0, len(buf))
