"""Remote segments of one partition, from the records of `__remote_log_metadata` (S6).

Only `apply` changes the cache. A record below `next_offset` was applied already: the topic is read
from its start again whenever a broker takes on another partition in the same partition of the
topic. A record that may not follow the present state is refused and changes nothing. All brokers
read the same records in the same order, so all refuse the same ones. So a leader that was replaced
during a copy cannot finish a segment that its successor has begun to delete.

Only finished copies are found by offset (S3). Copies overlap if two leaders rolled their segments
at different offsets; then the copy that reaches furthest is found.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.tiered.lineage import Lineage, OffsetRange
from storage.tiered.states import (
    PartitionDeleteState,
    SegmentState,
    partition_may_become,
    segment_may_become,
)
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentId,
    SegmentUpdate,
    TierRecord,
)


class Outcome(NamedTuple):
    """Effect of a record. `refusal` is the reason why a record was refused; it is empty for a
    record that was applied or that repeats the present state."""

    changed: bool
    refusal: str = ""


REPEATED: Final = Outcome(changed=False)
APPLIED: Final = Outcome(changed=True)


class RemoteEnd(NamedTuple):
    """The last offset in the tier and its leader epoch; both are -1 if the tier is empty."""

    offset: int
    epoch: int


NO_REMOTE_END: Final = RemoteEnd(-1, -1)


class SharedSegment(NamedTuple):
    """A finished copy, and the range of its offsets that a lineage shares."""

    segment: RemoteSegment
    offsets: OffsetRange


class _EpochIndex:
    """The finished copies with records of one epoch, by offset.

    Starts and ends both ascend strictly: a copy that lies within another one is kept in `aside`
    until that one is removed.
    """

    __slots__ = ("aside", "ends", "ids", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.ids: list[SegmentId] = []
        self.aside: dict[SegmentId, tuple[int, int]] = {}

    def add(self, segment_id: SegmentId, start: int, end: int) -> None:
        at = bisect_right(self.starts, start)
        within_earlier = at > 0 and self.ends[at - 1] >= end
        if within_earlier:
            self.aside[segment_id] = (start, end)
            return
        first = bisect_left(self.starts, start)
        last = bisect_right(self.ends, end)
        for covered in range(first, last):
            self.aside[self.ids[covered]] = (self.starts[covered], self.ends[covered])
        if first < last:
            del self.starts[first:last], self.ends[first:last], self.ids[first:last]
        self.starts.insert(first, start)
        self.ends.insert(first, end)
        self.ids.insert(first, segment_id)

    def remove(self, segment_id: SegmentId, start: int) -> None:
        if self.aside.pop(segment_id, None) is not None:
            return
        at = bisect_left(self.starts, start)
        del self.starts[at], self.ends[at], self.ids[at]
        waiting, self.aside = self.aside, {}
        for other, (other_start, other_end) in waiting.items():
            self.add(other, other_start, other_end)

    def find(self, offset: int) -> SegmentId | None:
        at = bisect_right(self.starts, offset) - 1
        return self.ids[at] if at >= 0 and self.ends[at] >= offset else None


class SegmentCache:
    """The known segments of one partition."""

    __slots__ = (
        "_by_epoch",
        "_deleted",
        "_highest",
        "_segments",
        "_with_aborted",
        "changes",
        "deletion",
        "next_offset",
        "partition",
    )

    def __init__(self, partition: RemotePartition) -> None:
        self.partition = partition
        self.next_offset = 0
        """All records of the topic below this offset were applied."""
        self.changes = 0
        """Number of records that changed the cache: a decision based on it holds while this is
        unchanged."""
        self.deletion: PartitionDeleteState | None = None
        """Progress of the partition's removal; None: it has not begun."""
        self._segments: dict[SegmentId, RemoteSegment] = {}
        self._by_epoch: dict[int, _EpochIndex] = {}
        self._deleted: dict[int, list[OffsetRange]] = {}
        """By epoch: offsets of finished copies whose deletion has begun."""
        self._highest: dict[int, int] = {}
        self._with_aborted: dict[SegmentId, RemoteSegment] = {}

    # Replaying -------------------------------------------------------------------------------

    def apply(self, offset: int, record: TierRecord) -> Outcome:
        """Apply the record at `offset` of the topic's partition."""
        if offset < self.next_offset:
            return REPEATED
        self.next_offset = offset + 1
        refusal = self.refusal(record)
        if refusal:
            return Outcome(changed=False, refusal=refusal)
        outcome = self._take_over(record)
        self.changes += outcome.changed
        return outcome

    def _take_over(self, record: TierRecord) -> Outcome:
        if isinstance(record, PartitionDeletion):
            changed = self.deletion is not record.state
            self.deletion = record.state
            return APPLIED if changed else REPEATED
        if isinstance(record, RemoteSegment):
            if record.segment_id in self._segments:
                return REPEATED
            self._segments[record.segment_id] = record
            return APPLIED
        assert isinstance(record, SegmentUpdate)
        return self._update(record)

    def refusal(self, record: TierRecord) -> str:
        """Return why a record may not follow the present state; empty if it may."""
        if isinstance(record, PartitionDeletion):
            if partition_may_become(self.deletion, record.state):
                return ""
            return f"a removal that is {_name(self.deletion)} cannot become {record.state.name}"
        if isinstance(record, RemoteSegment | SegmentUpdate):
            known = self._segments.get(record.segment_id)
            state = known.state if known is not None else None
            begins = record.state is SegmentState.COPY_STARTED
            if begins and self.deletion is not None:
                return f"the partition's removal is {self.deletion.name}"
            if isinstance(record, RemoteSegment) is not begins:
                return f"{record.state.name} in a {type(record).__name__}"
            if segment_may_become(state, record.state):
                return ""
            return f"a segment that is {_name(state)} cannot become {record.state.name}"
        return f"{type(record).__name__} is none of the topic's"

    def _update(self, update: SegmentUpdate) -> Outcome:
        known = self._segments[update.segment_id]
        if known.state is update.state:
            return REPEATED
        updated = known.updated(update)
        if known.state is SegmentState.COPY_FINISHED:
            self._unindex(known)
            self._note_deleted(known)
        if update.state is SegmentState.DELETE_FINISHED:
            del self._segments[update.segment_id]
            return APPLIED
        self._segments[update.segment_id] = updated
        if update.state is SegmentState.COPY_FINISHED:
            self._index(updated)
        return APPLIED

    def _index(self, segment: RemoteSegment) -> None:
        if not segment.txn_index_empty:
            self._with_aborted[segment.segment_id] = segment
        for epoch, start, end in segment.epoch_ranges():
            self._by_epoch.setdefault(epoch, _EpochIndex()).add(segment.segment_id, start, end)
            self._highest[epoch] = max(end, self._highest.get(epoch, -1))

    def _unindex(self, segment: RemoteSegment) -> None:
        self._with_aborted.pop(segment.segment_id, None)
        for epoch, start, _ in segment.epoch_ranges():
            self._by_epoch[epoch].remove(segment.segment_id, start)

    def _note_deleted(self, segment: RemoteSegment) -> None:
        """Note the offsets of a deleted copy. Copies are mostly deleted in order, so each epoch has
        one range."""
        for epoch, first, last in segment.epoch_ranges():
            ranges = self._deleted.setdefault(epoch, [])
            if ranges and ranges[-1].first <= first <= ranges[-1].last + 1:
                ranges[-1] = OffsetRange(ranges[-1].first, max(last, ranges[-1].last))
            else:
                ranges.append(OffsetRange(first, last))

    # Queries ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, segment_id: SegmentId) -> RemoteSegment | None:
        """Return a segment in any state but DELETE_FINISHED."""
        return self._segments.get(segment_id)

    def segments(self) -> Iterator[RemoteSegment]:
        """Iterate over all segments in any state but DELETE_FINISHED, in the order of their
        records.

        The iterator is invalid after a change.
        """
        return iter(self._segments.values())

    def finished(self) -> Iterator[RemoteSegment]:
        """Iterate over the segments that can be read."""
        return (one for one in self.segments() if one.state is SegmentState.COPY_FINISHED)

    def unfinished(self) -> Iterator[RemoteSegment]:
        """Iterate over the segments whose copy or removal has begun and not ended, by any
        broker."""
        return (one for one in self.segments() if one.state is not SegmentState.COPY_FINISHED)

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the finished copy that contains `offset` as written in `epoch`."""
        index = self._by_epoch.get(epoch)
        found = index.find(offset) if index is not None else None
        return self._segments[found] if found is not None else None

    def find_on(self, lineage: Lineage, offset: int) -> SharedSegment | None:
        """Return the finished copy that contains `offset` of this log, and its readable range.

        Offsets after that range may belong to records that an unclean election removed.
        """
        epoch = lineage.epoch_at(offset)
        segment = self.find(epoch, offset)
        if segment is None:
            return None
        return SharedSegment(segment, lineage.shared(segment))

    def with_aborted(self, lineage: Lineage, offset: int) -> list[SharedSegment]:
        """Return the finished copies with a transaction index and offsets of this log from `offset`
        on.

        Sorted by offset. A transaction may be aborted long after its records.
        """
        found = [
            SharedSegment(one, lineage.shared(one))
            for one in self._with_aborted.values()
            if one.end_offset >= offset
        ]
        return sorted(
            (shared for shared in found if shared.offsets),
            key=lambda shared: (shared.offsets, shared.segment.segment_id),
        )

    def deleted_to(self, lineage: Lineage) -> int:
        """Return one above the highest offset of this log that was deleted from the tier, 0 if no
        deletion has begun. Deleted copies of a log that lost do not count."""
        found = 0
        for entry in lineage.entries:
            mine = lineage.range_of(entry.epoch)
            for first, last in self._deleted.get(entry.epoch, ()):
                if first <= mine.last:
                    found = max(found, min(last, mine.last) + 1)
        return found

    def remote_end(self, lineage: Lineage) -> RemoteEnd:
        """Return the highest offset of this log that was ever copied.

        A higher copied offset may belong to a log that lost. Expired copies count. They are below
        the log start, where the first known epoch begins, although that epoch wrote earlier
        records, too.
        """
        for entry in reversed(lineage.entries):
            offsets = lineage.range_of(entry.epoch)
            highest = min(self._highest.get(entry.epoch, -1), offsets.last)
            if offsets and highest >= 0:
                return RemoteEnd(highest, entry.epoch)
        return NO_REMOTE_END

    def shared_with(self, lineage: Lineage) -> list[SharedSegment]:
        """Return the finished copies with offsets of this log, by offset, each once (S3)."""
        found = [SharedSegment(one, lineage.shared(one)) for one in self.finished()]
        return sorted(
            (shared for shared in found if shared.offsets),
            key=lambda shared: (shared.offsets, shared.segment.segment_id),
        )

    def covers(self, lineage: Lineage, first: int, last: int) -> bool:
        """Return whether finished copies cover all offsets from `first` to `last` of this log."""
        return self.covered_to(lineage, first, last) > last

    def covered_to(self, lineage: Lineage, first: int, last: int) -> int:
        """Return the first offset from `first` on that no finished copy of this log covers.

        If all offsets up to `last` are covered, return `last` + 1.
        """
        at = first
        while at <= last:
            shared = self.find_on(lineage, at)
            if shared is None or shared.offsets.last < at:
                return at
            at = shared.offsets.last + 1
        return at


def _name(state: SegmentState | PartitionDeleteState | None) -> str:
    return "not known" if state is None else state.name
