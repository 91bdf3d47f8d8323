"""The leader-epoch cache: start offsets of epochs (KIP-101).

A sorted list of (epoch, first offset of that epoch), both strictly increasing. The cache does no
I/O: the log decides when to save and load it. An epoch may be in the list before its first batch,
since a leader notes where its epoch begins. So the list is not a function of the batches alone, but
everything needed for correctness can be rebuilt from them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochCache:
    """The epochs of one log.

    `changes` counts changes. `saved` is the number of changes that the file contains, `durable` the
    number that survive a power cut. The two differ while the file has been replaced but the rename
    is not durable: a power cut may restore the previous file.
    """

    __slots__ = ("_epochs", "_starts", "changes", "durable", "saved")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changes = 0
        for epoch, start in entries:
            self.assign(epoch, start)
        self.changes = self.saved = self.durable = 0

    @property
    def dirty(self) -> bool:
        """True if the file does not contain the current list yet."""
        return self.saved != self.changes

    @property
    def unsettled(self) -> bool:
        """True if a power cut could undo part of the current list."""
        return self.durable != self.changes

    @property
    def latest_epoch(self) -> int:
        """The highest epoch; -1 if the list is empty."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def __len__(self) -> int:
        return len(self._epochs)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Assign a start offset to `epoch`. Returns whether the list changed.

        Entries that contradict the new one (same or higher epoch, same or later offset) are
        removed: they belong to a truncated history.
        """
        if epoch < 0 or start_offset < 0:
            return False
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[keep:]
        del self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changes += 1
        return True

    def prepend(self, entries: Iterable[tuple[int, int]]) -> bool:
        """Restore epochs before the first known one. Returns whether the list changed.

        The first known epoch keeps its start unless `entries` has an earlier start for it. Entries
        that do not fit before it are dropped.
        """
        older = EpochCache(entries)
        if self._epochs:
            older.truncate_from_end(self._starts[0])
            while older._epochs and older._epochs[-1] > self._epochs[0]:
                del older._epochs[-1], older._starts[-1]
        if not older._epochs:
            return False
        again = 1 if self._epochs and older._epochs[-1] == self._epochs[0] else 0
        self._epochs[:again] = older._epochs
        self._starts[:again] = older._starts
        self.changes += 1
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest known epoch that is not above `epoch`
        (KIP-279).

        Returns (-1, -1) if `epoch` is above all known ones or undefined. An epoch below the first
        known one is returned itself, with the start of the first known one as its end.
        """
        if epoch == NO_EPOCH or not self._epochs:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        at = bisect_right(self._epochs, epoch)
        if at == len(self._epochs):
            return NO_EPOCH, NO_OFFSET
        floor = epoch if at == 0 else self._epochs[at - 1]
        return floor, self._starts[at]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 if that is before the first known epoch."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that begin at or after `end_offset`. Returns whether the list changed."""
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        del self._epochs[keep:]
        del self._starts[keep:]
        self.changes += 1
        return True

    def truncate_from_start(self, start_offset: int, log_end_offset: int) -> bool:
        """Drop epochs before `start_offset`; the epoch in force there begins there.

        If the log is empty afterwards, the epoch of its last batch stays, at the batch's last
        offset. That epoch is needed to compare this log with others; an epoch that begins at the
        end without a batch does not serve (KIP-966).
        """
        start_offset = min(start_offset, log_end_offset - 1)
        covering = bisect_right(self._starts, start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = start_offset
        self.changes += 1
        return True

    def clear(self) -> None:
        self.changes += 1
        self._epochs.clear()
        self._starts.clear()
