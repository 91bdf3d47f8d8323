"""The leader-epoch lineage of a replica, and which offsets of remote segments lie on it.

Two logs agree on an offset if the same leader epoch wrote it in both, and then on all before it. So
a remote segment is good for a replica as far as its epochs are those of the replica's log, and no
further: a leader elected uncleanly may have cut what an earlier one had copied.

What a lineage does not know it does not deny. Below its first epoch (the cache is cut at the log
start, or was lost and made anew from local batches) a segment is neither on it nor lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from storage.log.epochs import NO_EPOCH, EpochEntry
from storage.tiered.values import RemoteSegment


class OffsetRange(NamedTuple):
    """Offsets from `first` to `last`, both included; none if `last` is below `first`."""

    first: int
    last: int

    def __bool__(self) -> bool:
        return self.first <= self.last


class Lineage:
    """The epochs of one log up to its end, as a value."""

    __slots__ = ("_epochs", "_starts", "entries", "log_end_offset")

    def __init__(self, entries: Iterable[EpochEntry], log_end_offset: int) -> None:
        self.entries = tuple(entries)
        self.log_end_offset = log_end_offset
        self._epochs = [entry.epoch for entry in self.entries]
        self._starts = [entry.start_offset for entry in self.entries]

    @property
    def latest_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def start_offset(self) -> int:
        """The first offset whose epoch is known; the log's end if none is."""
        return self._starts[0] if self._starts else self.log_end_offset

    def range_of(self, epoch: int) -> OffsetRange:
        """The offsets that `epoch` wrote, as far as is known."""
        at = bisect_right(self._epochs, epoch) - 1
        if at < 0 or self._epochs[at] != epoch:
            return OffsetRange(0, -1)
        next_start = self._starts[at + 1] if at + 1 < len(self._starts) else self.log_end_offset
        return OffsetRange(self._starts[at], min(next_start, self.log_end_offset) - 1)

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if that is not known, or not written yet."""
        if offset >= self.log_end_offset:
            return NO_EPOCH
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def epochs_of(self, first: int, last: int) -> tuple[EpochEntry, ...]:
        """The epochs that wrote [first, last], the first of them cut to begin there; empty unless
        all of it is known: what a segment to be copied says of itself."""
        if not self.start_offset <= first <= last < self.log_end_offset:
            return ()
        at = bisect_right(self._starts, first) - 1
        inside = [
            EpochEntry(entry.epoch, max(entry.start_offset, first))
            for entry in self.entries[at:]
            if entry.start_offset <= last
        ]
        # An epoch without records begins where the next one does.
        return tuple(
            entry
            for entry, later in zip(inside, [*inside[1:], None], strict=True)
            if later is None or entry.start_offset < later.start_offset
        )

    def up_to(self, last: int) -> tuple[EpochEntry, ...]:
        """The epochs that begin at or before `last`: what a replica that starts behind it needs."""
        return tuple(entry for entry in self.entries if entry.start_offset <= last)

    def shared(self, segment: RemoteSegment) -> OffsetRange:
        """The offsets of the segment that are the same in this log."""
        if len(segment.epochs) == 1:  # nearly all of them
            (entry,) = segment.epochs
            begins, ends = self.range_of(entry.epoch)
            first = max(entry.start_offset, segment.start_offset, begins)
            last = min(segment.end_offset, ends)
            return OffsetRange(first, last) if first <= last else OffsetRange(0, -1)
        first = last = -1
        for epoch, start, end in segment.epoch_ranges():
            mine = self.range_of(epoch)
            both = OffsetRange(max(start, mine.first), min(end, mine.last))
            if both and mine:
                first = both.first if first < 0 else first
                last = both.last
        return OffsetRange(first, last) if first >= 0 else OffsetRange(0, -1)

    def settled(self, segment: RemoteSegment) -> bool:
        """Whether the log can no longer come to share more of the segment than it does now: it
        has gone on with a later epoch, or beyond the segment's end."""
        last = segment.epochs[-1].epoch
        return last < self.latest_epoch or (
            last == self.latest_epoch and segment.end_offset < self.log_end_offset
        )

    def lost(self, segment: RemoteSegment) -> bool:
        """Whether none of the segment is of this log, for certain."""
        return (
            segment.end_offset >= self.start_offset
            and bool(self.entries)
            and not self.shared(segment)
            and self.settled(segment)
        )
