"""The leader-epoch lineage of a replica, and the offsets of remote segments that it shares.

If two logs have an offset from the same leader epoch, they agree on it and on all offsets before
it. So a replica may use a remote segment as far as the segment's epochs match the replica's log,
and no further: an uncleanly elected leader may have truncated records that an earlier one had
copied.

Unknown epochs are not a mismatch. Below the lineage's first epoch (the cache is truncated at the
log start, or was lost and rebuilt from local batches), a segment is neither shared nor lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from storage.log.epochs import NO_EPOCH, EpochEntry
from storage.tiered.values import RemoteSegment


class OffsetRange(NamedTuple):
    """Offsets from `first` to `last`, both included; empty if `last` is below `first`."""

    first: int
    last: int

    def __bool__(self) -> bool:
        return self.first <= self.last


class Lineage:
    """The epochs of one log up to its end, as an immutable value."""

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
        """The first offset whose epoch is known; the log's end if there are no epochs."""
        return self._starts[0] if self._starts else self.log_end_offset

    def range_of(self, epoch: int) -> OffsetRange:
        """Return the offsets that `epoch` wrote, as far as known."""
        at = bisect_right(self._epochs, epoch) - 1
        if at < 0 or self._epochs[at] != epoch:
            return OffsetRange(0, -1)
        next_start = self._starts[at + 1] if at + 1 < len(self._starts) else self.log_end_offset
        return OffsetRange(self._starts[at], min(next_start, self.log_end_offset) - 1)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 if it is unknown or not written yet."""
        if offset >= self.log_end_offset:
            return NO_EPOCH
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def epochs_of(self, first: int, last: int) -> tuple[EpochEntry, ...]:
        """Return the epochs that wrote [first, last], for the metadata record of a copy.

        The first one is cut to begin at `first`. Empty unless all of them are known.
        """
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
        """Return the epochs that begin at or before `last`, for a replica that starts after it."""
        return tuple(entry for entry in self.entries if entry.start_offset <= last)

    def shared(self, segment: RemoteSegment) -> OffsetRange:
        """Return the offsets of the segment that are the same in this log."""
        if len(segment.epochs) == 1:  # nearly all segments
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
        """Return whether the log can never share more of the segment than now.

        This holds once it has a later epoch, or has grown beyond the segment's end.
        """
        last = segment.epochs[-1].epoch
        return last < self.latest_epoch or (
            last == self.latest_epoch and segment.end_offset < self.log_end_offset
        )

    def lost(self, segment: RemoteSegment) -> bool:
        """Return whether the log certainly shares nothing with the segment."""
        return (
            segment.end_offset >= self.start_offset
            and bool(self.entries)
            and not self.shared(segment)
            and self.settled(segment)
        )
