"""Remote segments that have expired: a leader's decision (S3, S4).

The plan names the new log start and the segments to delete. Whoever carries it out makes the log
start durable, on the disk, before the first DELETE_STARTED: a crash in between must not leave a log
that promises what is gone (KAFKA-15352).

Time and size take the oldest segments of the leader's own lineage, and end with the first that
stays. What then lies below the log start goes with them, whoever copied it. Copies that were begun
and not finished go, as do those of a lineage that lost; neither counts as data, so neither makes a
good segment expire sooner. What the lineage cannot judge stays. Of a segment that was copied twice
both copies go at once, and only if what then stays is not below the limit; Kafka takes one, moves
the log start over the other, and keeps less than `retention.bytes`.

What another leader began goes after a finished copy has its records: the COPY_FINISHED may be on
the way, and a replica that reads it lets go of its local segments before it reads the
DELETE_STARTED behind it.
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
    """Why a remote segment goes."""

    TIME = "older than retention.ms"
    SIZE = "beyond retention.bytes"
    LOG_START = "below the log start"
    LOST = "of a leader-epoch lineage that lost"
    UNFINISHED = "its copy was begun and will not be finished"
    AGAIN = "its deletion was begun and not finished"


class Deletion(NamedTuple):
    """A segment to delete and why."""

    segment: RemoteSegment
    reason: Reason


class ExpiryPlan(NamedTuple):
    """The log start, to be made durable first, and then the segments to delete, in this order.

    `stands_until_ms`: a plan without deletions is the same one until then, as long as nothing but
    the time is another; None: for good."""

    log_start_offset: int
    deletions: tuple[Deletion, ...]
    stands_until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`retention.ms` and `retention.bytes`; below 0 there is no limit."""

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
    """What the leader is to delete.

    Args:
        local_start_offset: the first offset on the leader's disk.
        now_ms: time by a clock that does not jump (`SteadyTime`).
        local_only_bytes: of local segments that have no copy (`copying.local_only_bytes`).
        being_copied: what this leader is copying at this moment.
        taken_back: what this leader has given up copying: no COPY_FINISHED will come.
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
                break  # a new leader's mark may stand low for a moment: the log start may not pass
            why.setdefault(one.segment.segment_id, reason)
            new_start = max(new_start, one.offsets.last + 1)
    deletions = []
    for segment in cache.segments():
        if segment.state is SegmentState.COPY_STARTED:
            first = max(new_start, min(local_start_offset, cache.deleted_to))
            may_go = segment.segment_id in taken_back or (
                segment.segment_id not in being_copied
                and _is_replaced(cache, lineage, segment, first)
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
    """Whether there is a copy of a later leader epoch.

    Who finds one leads no more, and is to delete nothing: by the settings of the time when it was
    cut off, and by a log that has lost, it would take what that leader has on no disk any more
    (S2, S6).
    """
    return any(one.epochs[-1].epoch > leader_epoch for one in cache.segments())


def readable_from(
    cache: SegmentCache, lineage: Lineage, *, log_start_offset: int, local_start_offset: int
) -> int:
    """The log start that a leader should have, where the tier has lost what it promises.

    A leader that deleted what had expired, and died before its followers heard of the new log
    start, leaves them with the old one. What lies below is gone for good if the metadata tell of
    deletions up to there and of nothing else; anything else is nobody's to give up. Metadata that
    were lost tell of no deletion: what was copied can be found again (`kraftbox tier rebuild`), and
    a log start above it would have it deleted.
    """
    if log_start_offset >= local_start_offset or cache.find_on(lineage, log_start_offset):
        return log_start_offset
    later = [one.offsets.first for one in cache.shared_with(lineage)]
    readable = min([at for at in later if at > log_start_offset], default=local_start_offset)
    readable = min(readable, local_start_offset)
    if readable > cache.deleted_to:
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
    """When its newest record was written; where none says so, when its newest state was."""
    if segment.max_timestamp_ms >= 0:
        return segment.max_timestamp_ms
    return segment.event_timestamp_ms


def _by_size(shared: list[SharedSegment], retention: Retention, local_only_bytes: int) -> int:
    """How many of these go, so that what stays is not below the limit. With one go all that end no
    later, for the log start passes them: the second copy of the same segment, for instance."""
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
    """Return whether finished copies have all that an unfinished one has of this log from `first`
    on. Below it is what was deleted from the tier. What is neither on the leader's disk nor in a
    finished copy may be in this one alone: the metadata topic has lost its COPY_FINISHED."""
    offsets = lineage.shared(segment)
    return not offsets or cache.covers(lineage, max(offsets.first, first), offsets.last)


def _otherwise(
    segment: RemoteSegment,
    lineage: Lineage,
    useful: OffsetRange | None,
    log_start_offset: int,
) -> Reason | None:
    """Why a copy goes that was finished, and that neither time nor size takes. `useful` is what of
    it is of the lineage; None: nothing."""
    if segment.state is SegmentState.DELETE_STARTED:
        return Reason.AGAIN
    if segment.end_offset < log_start_offset:
        return Reason.LOG_START
    if useful is None and lineage.lost(segment):
        return Reason.LOST
    if useful is not None and useful.last < log_start_offset and lineage.settled(segment):
        return Reason.LOST
    return None
