"""A leader's selection of remote segments that have expired (S3, S4).

The plan contains the new log start and the segments to delete. The caller makes the log start
durable on the disk before the first DELETE_STARTED: otherwise a crash in between would leave a log
that promises deleted records (KAFKA-15352).

Time and size select the oldest segments of the leader's own lineage, up to the first that stays.
All copies below the new log start are deleted, too, whichever broker made them. So are copies that
will not be finished, and those of a lineage that lost; neither counts as data, so neither makes a
valid segment expire sooner. A segment that the lineage cannot judge stays.

If a segment was copied twice, both copies are deleted together, and only if the rest is not below
the limit. Kafka deletes one, moves the log start past the other, and keeps less than
`retention.bytes`.

A copy that another leader began is deleted only after a finished copy has its records. Its
COPY_FINISHED may still be on the way, and a replica that reads it removes its local segments before
it reads the DELETE_STARTED after it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from storage.tiered.cache import SegmentCache, SharedSegment
from storage.tiered.lineage import Lineage, OffsetRange
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment, SegmentId

UNLIMITED: Final = -1


class Reason(Enum):
    """Reason for deleting a remote segment."""

    TIME = "older than retention.ms"
    SIZE = "beyond retention.bytes"
    LOG_START = "below the log start"
    LOST = "of a leader-epoch lineage that lost"
    UNFINISHED = "its copy was begun and will not be finished"
    AGAIN = "its deletion was begun and not finished"


class Deletion(NamedTuple):
    """A segment to delete, and the reason."""

    segment: RemoteSegment
    reason: Reason


class ExpiryPlan(NamedTuple):
    """The log start, to be made durable first, and the segments to delete after that, in order.

    `stands_until_ms`: a plan without deletions stays the same until then if only the time changes;
    None: indefinitely.
    """

    log_start_offset: int
    deletions: tuple[Deletion, ...]
    stands_until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`retention.ms` and `retention.bytes`; a negative value means no limit."""

    ms: int = UNLIMITED
    bytes: int = UNLIMITED


def plan_expiry(
    cache: SegmentCache,
    lineage: Lineage,
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    local_start_offset: int,
    high_watermark: int,
    local_only_bytes: int,
    being_copied: Set[SegmentId] = frozenset(),
    taken_back: Set[SegmentId] = frozenset(),
) -> ExpiryPlan:
    """Plan the leader's deletions.

    Args:
        local_start_offset: the first offset on the leader's disk.
        now_ms: time of a clock that does not jump (`SteadyTime`).
        local_only_bytes: bytes of local segments without a copy (`copying.local_only_bytes`).
        being_copied: segments that this leader is copying now.
        taken_back: segments whose copy this leader has abandoned: no COPY_FINISHED will come.
    """
    of_lineage = cache.shared_with(lineage)
    useful = {one.segment.segment_id: one.offsets for one in of_lineage}
    shared = [one for one in of_lineage if one.offsets.last >= log_start_offset]
    why: dict[SegmentId, Reason] = {}
    new_start = log_start_offset
    for count, reason in (
        (_by_time(shared, retention, now_ms), Reason.TIME),
        (_by_size(shared, retention, local_only_bytes), Reason.SIZE),
    ):
        for one in shared[:count]:
            if one.offsets.last >= high_watermark:
                # a new leader's high watermark may be low for a moment: the log start may not pass
                # it
                break
            why.setdefault(one.segment.segment_id, reason)
            new_start = max(new_start, one.offsets.last + 1)
    deletions = []
    needed_from = max(new_start, min(local_start_offset, cache.deleted_to(lineage)))
    for segment in cache.segments():
        if segment.state is SegmentState.COPY_STARTED:
            may_go = segment.segment_id in taken_back or (
                segment.segment_id not in being_copied
                and _is_replaced(cache, lineage, segment, needed_from)
            )
            reason_of = Reason.UNFINISHED if may_go else None
        else:
            reason_of = why.get(segment.segment_id) or _otherwise(
                segment, lineage, useful.get(segment.segment_id), new_start
            )
        if reason_of is not None:
            deletions.append(Deletion(segment, reason_of))
    deletions.sort(key=lambda one: (one.segment.start_offset, one.segment.segment_id))
    stands_until_ms = None
    if shared and retention.ms >= 0:
        stands_until_ms = _written_ms(shared[0].segment) + retention.ms + 1
    return ExpiryPlan(new_start, tuple(deletions), stands_until_ms)


def another_leads(cache: SegmentCache, leader_epoch: int) -> bool:
    """Return whether there is a copy of a later leader epoch.

    A replica that finds one is no longer the leader and must delete nothing. Its settings are those
    of the time when it was cut off, and its log has lost. It would delete copies of records that
    are no longer on the new leader's disk (S2, S6).
    """
    return any(one.epochs[-1].epoch > leader_epoch for one in cache.segments())


def readable_from(
    cache: SegmentCache, lineage: Lineage, *, log_start_offset: int, local_start_offset: int
) -> int:
    """Return the log start that a leader should use if the tier lacks the present one.

    A leader may delete expired segments and die before its followers learn the new log start. The
    records below it are gone permanently if the metadata contain deletions up to there and no other
    segments; in all other cases the log start stays. Lost metadata contain no deletion: such copies
    can be found again (`kraftbox tier rebuild`), and a higher log start would have them deleted.
    """
    if log_start_offset >= local_start_offset or cache.find_on(lineage, log_start_offset):
        return log_start_offset
    later = [one.offsets.first for one in cache.shared_with(lineage)]
    readable = min([at for at in later if at > log_start_offset], default=local_start_offset)
    readable = min(readable, local_start_offset)
    if readable > cache.deleted_to(lineage):
        return log_start_offset
    for segment in cache.segments():
        overlaps = segment.start_offset < readable and segment.end_offset >= log_start_offset
        if overlaps and segment.state is not SegmentState.DELETE_STARTED:
            return log_start_offset
    return readable


def _by_time(shared: list[SharedSegment], retention: Retention, now_ms: int) -> int:
    if retention.ms < 0:
        return 0
    for at, one in enumerate(shared):
        if now_ms - _written_ms(one.segment) <= retention.ms:
            return at
    return len(shared)


def _written_ms(segment: RemoteSegment) -> int:
    """Return the segment's highest record timestamp, or else that of its last state change."""
    if segment.max_timestamp_ms >= 0:
        return segment.max_timestamp_ms
    return segment.event_timestamp_ms


def _by_size(shared: list[SharedSegment], retention: Retention, local_only_bytes: int) -> int:
    """Return how many of the oldest segments go, so that the rest is not below the limit.

    With a segment, all segments that end no later go, since the log start passes them: for instance
    a second copy of the same segment.
    """
    if retention.bytes < 0:
        return 0
    stays = local_only_bytes + sum(one.segment.size_bytes for one in shared)
    by_end = sorted(shared, key=lambda one: one.offsets.last, reverse=True)
    for at, one in enumerate(shared):
        while by_end and by_end[-1].offsets.last <= one.offsets.last:
            stays -= by_end.pop().segment.size_bytes
        if stays < retention.bytes:
            return at
    return len(shared)


def _is_replaced(cache: SegmentCache, lineage: Lineage, segment: RemoteSegment, first: int) -> bool:
    """Return whether finished copies cover an unfinished one's offsets of this log from `first` on.

    Offsets below `first` were deleted from the tier. Offsets that are neither on the leader's disk
    nor in a finished copy may exist in this copy alone: the metadata topic has lost its
    COPY_FINISHED.
    """
    offsets = lineage.shared(segment)
    return not offsets or cache.covers(lineage, max(offsets.first, first), offsets.last)


def _otherwise(
    segment: RemoteSegment,
    lineage: Lineage,
    useful: OffsetRange | None,
    log_start_offset: int,
) -> Reason | None:
    """Return why a finished copy is deleted that neither time nor size selects; None: it stays.

    `useful` is the range of it that the lineage shares; None: nothing.
    """
    if segment.state is SegmentState.DELETE_STARTED:
        return Reason.AGAIN
    if segment.end_offset < log_start_offset:
        return Reason.LOG_START
    if useful is None and lineage.lost(segment):
        return Reason.LOST
    if useful is not None and useful.last < log_start_offset and lineage.settled(segment):
        return Reason.LOST
    return None
