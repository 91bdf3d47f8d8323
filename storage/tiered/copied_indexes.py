"""Indexes of a copy, built from its batches while they are checked (KIP-405).

The index files of the segment may have rotted, and have no checksums. A reader of the local log
notices and rebuilds them, but a reader of the tier would be misled for as long as the copy lives.
Entries are chosen as in `Segment.note`.
"""

from __future__ import annotations

from protocol.batch.header import NO_TIMESTAMP, BatchHeader
from storage.log.indexes import OFFSET_ENTRY, TIME_ENTRY


class CopiedIndexes:
    """Offset and time index of one segment, in Kafka's formats.

    Args:
        base_offset: the segment's first offset, to which entries are relative.
        interval_bytes: bytes of the log between two entries (`index.interval.bytes`).
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
        """Add the next batch of the segment, at `position`."""
        if header.max_timestamp > self._highest[0]:
            self._highest = (header.max_timestamp, header.last_offset)
        if self._since_bytes > self._interval_bytes:
            self.offsets += OFFSET_ENTRY.pack(header.last_offset - self._base_offset, position)
            self._note_time()
            self._since_bytes = 0
        self._since_bytes += header.size_bytes

    @property
    def highest_ms(self) -> int:
        """The highest timestamp of all added batches (epoch milliseconds); -1 if none has one."""
        return self._highest[0]

    def times(self) -> bytes:
        """Return the time index. Its last entry has the highest timestamp of all added batches."""
        self._note_time()
        return bytes(self._times)

    def _note_time(self) -> None:
        timestamp_ms, offset = self._highest
        if timestamp_ms > self._written_ms:
            self._times += TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)
            self._written_ms = timestamp_ms
