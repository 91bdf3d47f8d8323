"""Time of the first batch that a log has locally (KIP-1303).

The time index cannot say it: its entries are sparse, and each is the highest time so far. So the
batch itself is asked, once for as long as the log begins with it.
"""

from __future__ import annotations

from protocol.batch.header import NO_TIMESTAMP, BatchHeader, TimestampType
from storage.log.segment import Segment
from storage.log.segments import Segments


class LocalStart:
    """What was found, and for which beginning of the log that holds."""

    __slots__ = ("_cuts", "_offset", "_segment", "timestamp_ms")

    def __init__(self) -> None:
        self.timestamp_ms = NO_TIMESTAMP
        self._segment: Segment | None = None
        self._offset = -1
        self._cuts = -1

    def holds(self, first: Segment, offset: int, cuts: int) -> bool:
        """Whether `timestamp_ms` is that of a log whose first segment is `first`, which begins at
        `offset` and was cut so many times."""
        return self._segment is first and self._offset == offset and self._cuts == cuts

    def find(self, segments: Segments, offset: int, cuts: int) -> int:
        """Looks anew, and returns it. Raises OSError, CorruptLog, CorruptIndex."""
        header = _first_batch(segments, offset)
        if header is None:
            return NO_TIMESTAMP  # nothing to remember: the first batch is yet to come
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
    """That of its first record, where the batch says it."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME or header.has_delete_horizon:
        return header.max_timestamp
    return header.base_timestamp
