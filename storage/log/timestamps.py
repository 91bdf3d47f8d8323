"""Finding records by time. Only the one batch that holds the answer is read record by record.

A search may have to look at every segment, or at every batch of one, and to unpack a batch of
megabytes. So it is a generator that does a little at a time: what it yields is a batch that wants
to be looked into (`look_into`, where and when the caller likes), or None, after so much work that
others should have their turn. The log may change meanwhile; a search goes on as long as
`Segments.generation` stands still, and is begun again otherwise.

A batch whose records cannot be read, because its producer lied and nobody looked, whose checksum
says that the disk has not kept it, or that would unpack to more than `UNPACKED_BYTES_MAX`, is taken
as one record with the facts of its header. So is one behind `LIES_MAX` batches whose headers
promised a time that none of their records has.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from protocol.batch.header import BatchHeader, crc_ok
from protocol.batch.records import record_times, records_payload
from protocol.errors import ApiError, ErrorCode, ProtocolError
from storage.log.segment import Segment
from storage.log.segments import Segments

UNPACKED_BYTES_MAX = 16 << 20
"""About 20 ms of decompression; as many tiny records take a second to look at."""
BATCHES_PER_STEP = 500
"""Headers walked before others have their turn: about a millisecond."""
LIES_MAX = 10
"""Batches that may turn out not to hold what their header promises before headers are believed."""
SEGMENTS_PER_STEP = 20
"""Segments asked for their times, which may open two files each."""


class TimestampOffset(NamedTuple):
    """A record found by time; `leader_epoch` -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class Wanted(NamedTuple):
    """A batch to be looked into: for its first record from `start_offset` on with this timestamp
    or a later one."""

    segment: Segment
    header: BatchHeader
    position: int
    timestamp_ms: int
    start_offset: int


class LookedInto(NamedTuple):
    """What was found in a batch, and how many of its records were looked at."""

    found: TimestampOffset | None
    records: int


Search: TypeAlias = Generator[Wanted | None, TimestampOffset | None, TimestampOffset | None]
"""Yields what it wants to know, is sent what was found, and returns the answer."""


def first_at_or_after(segments: Segments, timestamp_ms: int, start_offset: int) -> Search:
    """The first record from `start_offset` on with this timestamp or a later one."""
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
    """The first record that has the highest timestamp of all (ListOffsets -3, KIP-734)."""
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
    # Where the header promised a timestamp that no record has, the batch is the answer.
    return found or as_header_says(header)


def look_into(data: bytes, wanted: Wanted) -> LookedInto:
    """Finds the record in the bytes of the batch. May be called in any thread."""
    return look_into_batch(data, wanted.header, wanted.timestamp_ms, wanted.start_offset)


def promises(header: BatchHeader, timestamp_ms: int, start_offset: int) -> bool:
    """Whether the batch has a record from `start_offset` on with this timestamp or a later one, by
    its header; one that was emptied has none."""
    return (
        header.max_timestamp >= timestamp_ms
        and header.last_offset >= start_offset
        and header.record_count > 0
    )


def as_header_says(header: BatchHeader, start_offset: int = 0) -> TimestampOffset:
    """The answer where the records are not asked. A batch may begin before the log does."""
    offset = max(header.base_offset, start_offset)
    return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)


def look_into_batch(
    data: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> LookedInto:
    """Finds the record in the bytes of a batch, wherever they came from. What the disk did not keep
    would tell of a wrong offset, behind records of that time."""
    records = 0
    try:
        if not crc_ok(data, 0, header.size_bytes):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE)
        payload = records_payload(data, 0, header, UNPACKED_BYTES_MAX)
        for timestamp, offset in record_times(payload, header):
            records += 1
            if timestamp >= timestamp_ms and offset >= start_offset:
                return LookedInto(TimestampOffset(timestamp, offset, header.leader_epoch), records)
    except (ApiError, ProtocolError):
        if promises(header, timestamp_ms, start_offset):
            return LookedInto(as_header_says(header, start_offset), records)
    return LookedInto(None, records)
