"""Selection of the segments to copy next (S2), from a leader's log, its lineage and the tier.

Closed segments are copied in order, each entirely below the last stable offset. A segment is
skipped if copies of this log's lineage cover all its offsets: an earlier leader may have rolled the
same records into other segments. The list ends at the first segment that may not be copied yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.log.epochs import EpochEntry
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage


class LocalSegment(NamedTuple):
    """A segment on the disk. `next_offset` is the start of the next one."""

    base_offset: int
    next_offset: int
    size_bytes: int


class Copyable(NamedTuple):
    """A segment to copy, and the leader epochs for its record.

    If the log start lies inside the segment, the epochs begin there: those of lower offsets are no
    longer known.
    """

    segment: LocalSegment
    epochs: tuple[EpochEntry, ...]


class CopyPlan(NamedTuple):
    """Segments to copy, oldest first. `blocked` is the reason why the next one cannot be copied, if
    waiting does not help."""

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
    """Plan the leader's copies. `closed` are its segments without the last, by offset."""
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
    """Return the bytes of local segments that no finished copy covers, including the last segment.

    They count for retention by size together with the copies. Offsets that another leader has
    deleted from the store do not count, even if that leader's log start has not arrived here: they
    would cause further deletions.
    """
    shared = cache.shared_with(lineage)
    gone_to = min(cache.deleted_to, shared[0].offsets.first) if shared else 0
    start = max(log_start_offset, gone_to)
    return sum(
        segment.size_bytes
        for segment in segments
        if segment.next_offset > gone_to
        and not cache.covers(lineage, max(segment.base_offset, start), segment.next_offset - 1)
    )
