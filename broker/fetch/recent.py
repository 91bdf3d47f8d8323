"""Cache of the last read of a log by any fetch.

Followers of a partition wake by the same append, and need the same bytes.
"""

from __future__ import annotations

from typing import Final

from storage.log.log import Log

KEPT_BYTES_MAX: Final = 1 << 20
"""A larger read is not cached: a broker keeps one read until the next one."""


class RecentRead:
    """The last read, one per broker. Two reads with the same arguments, of a log with the same end
    in the same newest epoch, have the same result. The reason: an epoch has one leader, which
    assigns an offset once."""

    __slots__ = ("_asked", "_data")

    def __init__(self) -> None:
        self._asked: tuple[object, ...] = ()
        self._data = b""

    def read(
        self, log: Log, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool
    ) -> bytes:
        """Do the same as `Log.read`, and raise its errors."""
        asked = (
            log,
            log.segments.generation,
            log.epochs.latest_epoch,
            log.bounds.log_end_offset,
            offset,
            max_bytes,
            max_offset,
            min_one_batch,
        )
        if asked == self._asked:
            return self._data
        data = log.reader.read(offset, max_bytes, max_offset, min_one_batch)
        if data and len(data) <= KEPT_BYTES_MAX:
            self._asked, self._data = asked, data
        return data
