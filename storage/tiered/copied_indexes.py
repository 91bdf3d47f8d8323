"""The indexes of a copy, made from its batches while they are checked (KIP-405).

The files beside the segment may have rotted since they were written, and have no checksums: a
reader of the log notices and makes them anew, but a reader of the tier would be misled for as long
as the copy lives. Entries are chosen as `Segment.note` does.
"""

from __future__ import annotations

from protocol.batch.header import NO_TIMESTAMP, BatchHeader
from storage.log.indexes import OFFSET_ENTRY, TIME_ENTRY


class CopiedIndexes:
    """Offset and time index of one segment, in Kafka's formats.

    Args:
        base_offset: the segment's first offset, which entries are relative to.
        interval_bytes: of the log, between two entries (`index.interval.bytes`).
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._since_bytes = 0
        self._highest = (NO_TIMESTAMP, base_offset)
        self._written_ms = NO_TIMESTAMP
        self.offsets = bytearray()
        self._times = bytearray()

    def note(self, header: BatchHeader, position: int) -> None:
        """The next batch of the segment, and where it begins."""
        if header.max_timestamp > self._highest[0]:
            self._highest = (header.max_timestamp, header.last_offset)
        if self._since_bytes > self._interval_bytes:
            self.offsets += OFFSET_ENTRY.pack(header.last_offset - self._base_offset, position)
            self._note_time()
            self._since_bytes = 0
        self._since_bytes += header.size_bytes

    @property
    def highest_ms(self) -> int:
        """The highest timestamp of all that was noted (epoch milliseconds), -1 if there is none."""
        return self._highest[0]

    def times(self) -> bytes:
        """The time index. Its last entry has the highest timestamp of all that was noted."""
        self._note_time()
        return bytes(self._times)

    def _note_time(self) -> None:
        timestamp_ms, offset = self._highest
        if timestamp_ms > self._written_ms:
            self._times += TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)
            self._written_ms = timestamp_ms
