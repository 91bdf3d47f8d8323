"""Finding records by time. Only the one batch that holds the answer is read record by record.

A batch whose records cannot be read, because its producer lied and nobody looked, or that would
unpack to more than `UNPACKED_BYTES_MAX`, is taken as one record with the facts of its header.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.batch.header import BatchHeader
from protocol.batch.records import Record, read_batch
from protocol.errors import ApiError, ProtocolError
from storage.log.segment import Segment
from storage.log.segments import Segments

UNPACKED_BYTES_MAX = 16 << 20
"""About 20 ms of decompression, on the loop."""


class TimestampOffset(NamedTuple):
    """A record found by time; `leader_epoch` -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Segments, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """The first record from `start_offset` on with this timestamp or a later one."""
    for segment in segments.holding(start_offset):
        if segment.max_timestamp()[0] < timestamp_ms:
            continue
        for header, position in segment.batches_from_timestamp(timestamp_ms, start_offset):
            for record in _records(segment, header, position):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def highest(segments: Segments, start_offset: int) -> TimestampOffset | None:
    """The first record that has the highest timestamp of all (ListOffsets -3, KIP-734)."""
    best: Segment | None = None
    for segment in segments.holding(start_offset):
        if best is None or segment.max_timestamp()[0] > best.max_timestamp()[0]:
            best = segment
    if best is None or best.max_timestamp()[0] < 0:
        return None
    timestamp_ms, last_offset = best.max_timestamp()
    found = best.find(last_offset)
    if found is None:
        return None
    header, position = found
    for record in _records(best, header, position):
        if record.timestamp == timestamp_ms:
            return TimestampOffset(timestamp_ms, record.offset, header.leader_epoch)
    # The header promised a timestamp that no record has; the batch is the answer then.
    return TimestampOffset(timestamp_ms, header.base_offset, header.leader_epoch)


def _records(segment: Segment, header: BatchHeader, position: int) -> list[Record]:
    data = segment.log.pread(header.size_bytes, position)
    try:
        return list(read_batch(data, 0, header, UNPACKED_BYTES_MAX))
    except (ApiError, ProtocolError):
        return [Record(offset=header.base_offset, timestamp=header.max_timestamp)]
