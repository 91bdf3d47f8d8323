"""Segments to copy next (S2): a decision over a leader's log, its lineage and what the tier has.

Closed segments go in order, each wholly below the last stable offset. A segment whose offsets are
all in the tier already, by copies of this log's lineage, is passed over: an earlier leader may have
cut the same records into other segments. The first that may not go yet ends the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.log.epochs import EpochEntry
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage


class LocalSegment(NamedTuple):
    """A segment on the disk. `next_offset` is where the one after it begins."""

    base_offset: int
    next_offset: int
    size_bytes: int


class Copyable(NamedTuple):
    """A segment to copy and the leader epochs that its record says. They begin at the log start
    where that lies inside the segment: which epochs wrote what is below nobody knows any more."""

    segment: LocalSegment
    epochs: tuple[EpochEntry, ...]


class CopyPlan(NamedTuple):
    """Segments to copy, oldest first; `blocked` says why the next one may not go, if that is
    nothing that time mends."""

    segments: tuple[Copyable, ...]
    blocked: str = ""

    @property
    def lag_bytes(self) -> int:
        return sum(one.segment.size_bytes for one in self.segments)


def plan_copy(
    cache: SegmentCache,
    lineage: Lineage,
    closed: Sequence[LocalSegment],
    *,
    log_start_offset: int,
    last_stable_offset: int,
) -> CopyPlan:
    """What the leader is to copy. `closed` are its segments but the last, by offset."""
    found: list[Copyable] = []
    for segment in closed:
        if segment.next_offset > last_stable_offset:
            break
        last = segment.next_offset - 1
        if segment.next_offset <= log_start_offset or not segment.size_bytes:
            continue
        first = max(segment.base_offset, log_start_offset)
        if cache.covers(lineage, first, last):
            continue
        epochs = lineage.epochs_of(first, last)
        if not epochs:
            why = f"the leader epochs of {first}..{last} are not known"
            return CopyPlan(tuple(found), why)
        found.append(Copyable(segment, epochs))
    return CopyPlan(tuple(found))


def local_only_bytes(
    cache: SegmentCache,
    lineage: Lineage,
    segments: Sequence[LocalSegment],
    *,
    log_start_offset: int,
) -> int:
    """Bytes of all local segments, the last one too, that no finished copy has: they count for
    retention by size beside the copies. Not what another leader has deleted from the store, whose
    log start this one has not heard of: it would make room for it once more."""
    shared = cache.shared_with(lineage)
    gone_to = min(cache.deleted_to, shared[0].offsets.first) if shared else 0
    start = max(log_start_offset, gone_to)
    return sum(
        segment.size_bytes
        for segment in segments
        if segment.next_offset > gone_to
        and not cache.covers(lineage, max(segment.base_offset, start), segment.next_offset - 1)
    )
