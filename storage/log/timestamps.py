"""Search for records by timestamp. Only the batch with the result is read record by record.

A search may have to visit every segment, or every batch of one, and to decompress a batch of
megabytes. So it is a generator that works in small steps. It yields a batch to examine
(`look_into`, in any thread, at any time), or None after enough work that other tasks should run.
The log may change in between: a search continues while `Segments.generation` is unchanged, and
restarts otherwise.

Some batches count as one record with the offset and timestamp of their header:

* the records cannot be read, because the producer sent garbage that was never validated;
* the checksum shows that the disk has not preserved the batch;
* it would decompress to more than `UNPACKED_BYTES_MAX`;
* it follows `LIES_MAX` batches whose headers promised a timestamp that none of their records has.

As in Kafka 4.4, a search fails at a record above `max.decompressed.message.bytes` in a compressed
batch, unless it ends in front of that record.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from protocol.batch.header import BatchHeader, crc_ok
from protocol.batch.records import (
    RECORD_BYTES_MAX,
    RecordTooLarge,
    record_times,
    records_payload,
)
from protocol.errors import ApiError, ErrorCode, ProtocolError
from storage.log.segment import Segment
from storage.log.segments import Segments

UNPACKED_BYTES_MAX = 16 << 20
"""About 20 ms of decompression; scanning as many bytes of tiny records takes a second."""
BATCHES_PER_STEP = 500
"""Headers walked before other tasks run: about a millisecond."""
LIES_MAX = 10
"""Number of batches with false header timestamps after which headers are trusted."""
SEGMENTS_PER_STEP = 20
"""Segments whose timestamps are read per step; each may open two files."""


class TimestampOffset(NamedTuple):
    """A record found by timestamp; `leader_epoch` is -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class Wanted(NamedTuple):
    """A batch to search for its first record with this timestamp or a later one, from
    `start_offset` on."""

    segment: Segment
    header: BatchHeader
    position: int
    timestamp_ms: int
    start_offset: int


class LookedInto(NamedTuple):
    """Result of searching one batch, and the number of records examined."""

    found: TimestampOffset | None
    records: int


Search: TypeAlias = Generator[Wanted | None, TimestampOffset | None, TimestampOffset | None]
"""Yields a batch to search, receives what was found in it, and returns the result."""


def first_at_or_after(segments: Segments, timestamp_ms: int, start_offset: int) -> Search:
    """Search for the first record from `start_offset` on with this timestamp or a later one."""
    disappointed = 0
    for number, segment in enumerate(segments.holding(start_offset), 1):
        if number % SEGMENTS_PER_STEP == 0:
            yield None
        if segment.max_timestamp()[0] < timestamp_ms:
            continue
        walked = segment.batches_from_timestamp(timestamp_ms, start_offset)
        for count, (header, position) in enumerate(walked, 1):
            if count % BATCHES_PER_STEP == 0:
                yield None
            if not promises(header, timestamp_ms, start_offset):
                continue
            if disappointed > LIES_MAX and header.base_offset >= start_offset:
                return as_header_says(header)
            found = yield Wanted(segment, header, position, timestamp_ms, start_offset)
            if found is not None:
                return found
            disappointed += 1
    return None


def highest(segments: Segments, start_offset: int) -> Search:
    """Search for the first record that has the highest timestamp of all (ListOffsets -3,
    KIP-734)."""
    best: Segment | None = None
    for number, segment in enumerate(segments.holding(start_offset), 1):
        if best is None or segment.max_timestamp()[0] > best.max_timestamp()[0]:
            best = segment
        if number % SEGMENTS_PER_STEP == 0:
            yield None
    if best is None or best.max_timestamp()[0] < 0:
        return None
    timestamp_ms, last_offset = best.max_timestamp()
    place = best.find(last_offset)
    if place is None:
        return None
    header, position = place
    found = yield Wanted(best, header, position, timestamp_ms, header.base_offset)
    # If the header promised a timestamp that no record has, the batch is the result.
    return found or as_header_says(header)


def look_into(data: bytes, wanted: Wanted, record_bytes_max: int = RECORD_BYTES_MAX) -> LookedInto:
    """Search the bytes of the wanted batch. Thread-safe. Raises ApiError as `look_into_batch`."""
    header, timestamp_ms, start_offset = wanted.header, wanted.timestamp_ms, wanted.start_offset
    return look_into_batch(data, header, timestamp_ms, start_offset, record_bytes_max)


def promises(header: BatchHeader, timestamp_ms: int, start_offset: int) -> bool:
    """Return whether, by its header, the batch has a matching record from `start_offset` on.

    An emptied batch has none.
    """
    return (
        header.max_timestamp >= timestamp_ms
        and header.last_offset >= start_offset
        and header.record_count > 0
    )


def as_header_says(header: BatchHeader, start_offset: int = 0) -> TimestampOffset:
    """Return the result from the header alone. A batch may begin before the log does."""
    offset = max(header.base_offset, start_offset)
    return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)


def look_into_batch(
    data: bytes,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: int,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> LookedInto:
    """Search the bytes of a batch from any source.

    Bytes with a wrong checksum are not searched: they could yield a wrong offset, behind matching
    records.

    Raises ApiError(INVALID_RECORD) if the search meets a record above `record_bytes_max`.
    """
    records, count = 0, header.record_count
    too_large: RecordTooLarge | None = None
    try:
        if not crc_ok(data, 0, header.size_bytes):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE)
        try:
            payload = records_payload(data, 0, header, UNPACKED_BYTES_MAX, record_bytes_max)
        except RecordTooLarge as error:
            too_large, payload, count = error, error.before, error.index
        for timestamp, offset in record_times(payload, header, count):
            records += 1
            if timestamp >= timestamp_ms and offset >= start_offset:
                return LookedInto(TimestampOffset(timestamp, offset, header.leader_epoch), records)
    except (ApiError, ProtocolError):
        if promises(header, timestamp_ms, start_offset):
            return LookedInto(as_header_says(header, start_offset), records)
    if too_large is not None:
        raise ApiError(ErrorCode.INVALID_RECORD, str(too_large)) from too_large
    return LookedInto(None, records)
