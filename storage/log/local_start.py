"""Timestamp of the first batch that a log has locally (KIP-1303).

The time index cannot provide it: its entries are sparse, and each is the highest timestamp so far.
So the batch itself is read, once for as long as the log begins with it.
"""

from __future__ import annotations

from protocol.batch.header import NO_TIMESTAMP, BatchHeader, TimestampType
from storage.log.segment import Segment
from storage.log.segments import Segments


class LocalStart:
    """Cached timestamp, with the log start for which it holds."""

    __slots__ = ("_cuts", "_offset", "_segment", "timestamp_ms")

    def __init__(self) -> None:
        self.timestamp_ms = NO_TIMESTAMP
        self._segment: Segment | None = None
        self._offset = -1
        self._cuts = -1

    def holds(self, first: Segment, offset: int, cuts: int) -> bool:
        """Return whether `timestamp_ms` is valid for this first segment, local start and number of
        truncations."""
        return self._segment is first and self._offset == offset and self._cuts == cuts

    def find(self, segments: Segments, offset: int, cuts: int) -> int:
        """Read the timestamp and cache it. Raises OSError, CorruptLog, CorruptIndex."""
        header = _first_batch(segments, offset)
        if header is None:
            return NO_TIMESTAMP  # not cached: the first batch is yet to be appended
        self._segment, self._offset, self._cuts = segments[0], offset, cuts
        self.timestamp_ms = _time_of(header)
        return self.timestamp_ms


def _first_batch(segments: Segments, offset: int) -> BatchHeader | None:
    for segment in segments.holding(offset):
        if offset <= segment.base_offset:
            header = segment.first_header()
        else:
            found = segment.find(offset)
            header = None if found is None else found[0]
        if header is not None:
            return header
    return None


def _time_of(header: BatchHeader) -> int:
    """Return the timestamp of the batch's first record, as far as the header has it.

    With log append time or a delete horizon, the header has only the highest timestamp.
    """
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME or header.has_delete_horizon:
        return header.max_timestamp
    return header.base_timestamp
