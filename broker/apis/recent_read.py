"""The last read of a log by any fetch: followers of a partition wake by the same append, and want
the same bytes.
"""

from __future__ import annotations

from typing import Final

from storage.log.log import Log

KEPT_BYTES_MAX: Final = 1 << 20
"""More is read anew: a broker keeps one read, for as long as no other comes."""


class RecentRead:
    """One per broker. Two reads with the same question, of a log with the same end in the same
    newest epoch, have the same answer: an epoch has one leader, which gives an offset once."""

    __slots__ = ("_asked", "_data")

    def __init__(self) -> None:
        self._asked: tuple[object, ...] = ()
        self._data = b""

    def read(
        self, log: Log, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool
    ) -> bytes:
        """As `Log.read`, whose errors it raises."""
        asked = (
            log,
            log.segments.generation,
            log.latest_epoch,
            log.log_end_offset,
            offset,
            max_bytes,
            max_offset,
            min_one_batch,
        )
        if asked == self._asked:
            return self._data
        data = log.read(offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch)
        if data and len(data) <= KEPT_BYTES_MAX:
            self._asked, self._data = asked, data
        return data
