"""Offsets of a metadata log that have no batch: a damaged log, or one of another program."""

from __future__ import annotations

from protocol.batch.header import iter_batches
from protocol.schema import Buffer


class LogHoles:
    """The known holes of one log."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        """The first offset without a batch, and the offset of the next batch."""

    @property
    def first(self) -> tuple[int, int] | None:
        """The first hole, from its first offset to below the next batch; None without a hole."""
        return next(iter(self._ends.items()), None)

    def has(self, first: int, end: int) -> bool:
        """Return whether the offsets from `first` to below `end` were known to have no batch when
        the log was opened, or when a leader sent the batch at `end`."""
        return self._ends.get(first) == end

    def note(self, data: Buffer, offset: int) -> int:
        """Note the holes in front of and between batches that follow `offset`; returns their
        end."""
        for header, _ in iter_batches(data):
            if header.base_offset > offset:
                self._ends[offset] = header.base_offset
            offset = max(offset, header.next_offset)
        return offset

    def revert_to(self, end_offset: int) -> None:
        """Forget the holes from `end_offset` on, after a truncation."""
        self._ends = {first: end for first, end in self._ends.items() if end < end_offset}

    def clear(self) -> None:
        self._ends = {}
