"""Searches by time, in small steps with bounded work."""

from __future__ import annotations

import pytest

from protocol.batch.header import BatchHeader, parse_header
from protocol.batch.records import (
    InvalidRecord,
    Record,
    assemble,
    build_batch,
    read_batch,
    record_times,
    records_payload,
)
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from storage.log import timestamps
from storage.log.log import Log
from storage.log.timestamps import (
    BATCHES_PER_STEP,
    LIES_MAX,
    SEGMENTS_PER_STEP,
    TimestampOffset,
    Wanted,
    look_into,
)
from testkit.memory.logs import T0, append, batch, make_log, record_from


def steps(log: Log, timestamp_ms: int | None) -> tuple[int, int, TimestampOffset | None]:
    """Return (steps after which the search yielded, batches read, result)."""
    search = log.reader.search_time(timestamp_ms)
    pauses = looked = 0
    try:
        wanted = next(search)
        while True:
            found = None
            if wanted is None:
                pauses += 1
            else:
                looked += 1
                data = wanted.segment.log.pread(wanted.header.size_bytes, wanted.position)
                found = look_into(data, wanted).found
            wanted = search.send(found)
    except StopIteration as done:
        return pauses, looked, done.value


def lying(max_timestamp: int, records: int = 1) -> bytes:
    """Return a batch whose header has a time that none of its records has."""
    honest = batch(records)
    fields = BatchHeader(*parse_header(honest).fields())
    fields.max_timestamp = max_timestamp
    return assemble(fields, records_payload(honest, 0, fields), Codec.NONE)


def test_walking_over_many_batches_takes_many_steps() -> None:
    log = make_log(index_interval_bytes=1 << 30)
    append(log, batch(timestamp=T0 + 1_000))
    for _ in range(4 * BATCHES_PER_STEP):
        append(log, batch())
    append(log, batch(timestamp=T0 + 900))
    log.update_high_watermark(log.log_end_offset)
    log.advance_log_start(1)
    end = 4 * BATCHES_PER_STEP + 1
    assert steps(log, T0 + 900) == (4, 1, TimestampOffset(T0 + 900, end, 0))


@pytest.mark.parametrize("timestamp_ms", [None, T0 + 10])
def test_looking_at_many_segments_takes_many_steps(timestamp_ms: int | None) -> None:
    log = make_log()
    for _ in range(5 * SEGMENTS_PER_STEP):
        append(log, batch())
        log.roll()
    append(log, batch(timestamp=T0 + 10))
    pauses, looked, found = steps(log, timestamp_ms)
    assert (pauses, looked) == (5, 1)
    assert found == TimestampOffset(T0 + 10, 5 * SEGMENTS_PER_STEP, 0)


def test_headers_that_lie_are_believed_after_a_while() -> None:
    log = make_log()
    for _ in range(5 * LIES_MAX):
        append(log, lying(T0 + 100))
    pauses, looked, found = steps(log, T0 + 50)
    assert (pauses, looked) == (0, LIES_MAX + 1)
    assert found == TimestampOffset(T0 + 100, LIES_MAX + 1, 0)


def test_a_batch_is_walked_up_to_the_record() -> None:
    log = make_log()
    append(log, batch(400, step_ms=1))
    wanted = next(log.reader.search_time(T0 + 7))
    assert isinstance(wanted, Wanted)
    data = wanted.segment.log.pread(wanted.header.size_bytes, wanted.position)
    assert look_into(data, wanted) == (TimestampOffset(T0 + 7, 7, 0), 8)
    # Records behind the one found are not decoded.
    assert look_into(data[:120] + b"\xff" * (len(data) - 120), wanted).records <= 8


def test_a_batch_too_big_to_unpack_is_taken_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "UNPACKED_BYTES_MAX", 1_000)
    log = make_log()
    records = [Record(timestamp=T0 + n, value=b"x" * 100) for n in range(100)]
    append(log, build_batch(records, compression=Codec.ZSTD))
    assert record_from(log, T0 + 50) == (T0 + 99, 0, 0)


def test_times_are_those_of_the_records() -> None:
    records = [
        Record(timestamp=T0 + n * 100_000, key=b"k" * n, value=None, headers=[("h", b"v")] * n)
        for n in range(200)
    ]
    for stamp in (None, T0 + 5):
        data = build_batch(records, 1_000, log_append_time_ms=stamp)
        header = parse_header(data)
        payload = records_payload(data, 0, header)
        expected = [(each.timestamp, each.offset) for each in read_batch(data, 0, header)]
        assert list(record_times(payload, header)) == expected
        for cut in range(len(payload) - 300, len(payload)):
            with pytest.raises(InvalidRecord):
                list(record_times(payload[:cut], header))


def test_s8_timestamp_lookup_in_a_corrupt_batch_uses_its_header() -> None:
    """S8: a bit of an offset delta flips, and the record appeared behind others of its time (tiered
    seed 94)."""
    data = bytearray(batch(5, timestamp=T0))
    header = parse_header(data)
    wanted = (header, T0, 0)
    found = TimestampOffset(T0, 0, header.leader_epoch)
    assert timestamps.look_into_batch(bytes(data), *wanted).found == found
    data[64] ^= 16  # the offset delta of the first record: 8 in place of 0
    assert timestamps.look_into_batch(bytes(data), *wanted).found == found
    within = TimestampOffset(T0, 3, header.leader_epoch)
    for start, expected in ((3, within), (4, within._replace(offset=4)), (5, None)):
        # The log begins within the batch (tiered seed 394).
        assert timestamps.look_into_batch(bytes(data), header, T0, start).found == expected


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_search_fails_at_a_compressed_record_above_the_limit_unless_it_ends_before(
    codec: Codec,
) -> None:
    """Kafka 4.4 reads the records up to the result, and refuses a larger one with INVALID_RECORD
    (pull request 23429). Records of uncompressed batches have no such limit."""
    values = [b"x"] * 3 + [b"x" * 100_000] + [b"x"] * 3
    data = build_batch(
        [Record(timestamp=T0 + n, value=value) for n, value in enumerate(values)], compression=codec
    )
    header = parse_header(data)

    def offset_at(time_ms: int, limit: int) -> int | None:
        looked = timestamps.look_into_batch(data, header, time_ms, 0, limit)
        return None if looked.found is None else looked.found.offset

    for number in range(7):
        assert offset_at(T0 + number, 200_000) == number
        if number < 3 or codec is Codec.NONE:
            assert offset_at(T0 + number, 2_000) == number
        else:
            with pytest.raises(ApiError) as refused:
                offset_at(T0 + number, 2_000)
            assert refused.value.code is ErrorCode.INVALID_RECORD


def test_search_above_the_limit_takes_no_memory_for_the_rest_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that unpacks to more than the search allows is refused at its large record, and not
    taken by its header."""
    monkeypatch.setattr(timestamps, "UNPACKED_BYTES_MAX", 1 << 20)
    records = [Record(timestamp=T0 + n, value=bytes(4 << 20)) for n in range(2)]
    data = build_batch(records, compression=Codec.ZSTD)
    header = parse_header(data)
    looked = timestamps.look_into_batch(data, header, T0, 0)
    assert looked.found == timestamps.as_header_says(header)
    with pytest.raises(ApiError) as refused:
        timestamps.look_into_batch(data, header, T0, 0, 2_000)
    assert refused.value.code is ErrorCode.INVALID_RECORD
