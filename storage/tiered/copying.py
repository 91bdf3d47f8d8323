"""Selection of the segments to copy next (S2), from a leader's log, its lineage and the tier.

Closed segments are copied in order, each entirely below the last stable offset. A segment is
skipped if copies of this log's lineage cover all its offsets: an earlier leader may have rolled the
same records into other segments. The list ends at the first segment that may not be copied yet: its
records are not stable, its leader epochs are unknown, or the copy lag of its topic is not reached
(KIP-1241).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from storage.log.epochs import EpochEntry
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage

STEP_SEGMENTS: Final = 200
"""Segments in each step of planning: about half a millisecond."""


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


class CopyLag(NamedTuple):
    """The effective copy lag of a topic (KIP-1241); -1 means that a limit is never reached."""

    ms: int = 0
    size_bytes: int = -1

    def is_reached(
        self, timestamp_ms: Callable[[], int], *, now_ms: int, following_bytes: int
    ) -> bool:
        """Return whether a closed segment may be copied, by the rule of Kafka 4.4.

        One limit is enough. A limit of 0 is always reached. A timestamp ahead of the clock, and one
        that the disk does not yield, count as old enough.

        Args:
            timestamp_ms: returns the largest timestamp of the segment; it is called only where the
            limit in time decides.
            following_bytes: size of the segments behind this one, the active one included.
        """
        if self.ms == 0 or self.size_bytes == 0:
            return True
        if self.ms > 0:
            try:
                age_ms = now_ms - timestamp_ms()
            except OSError:
                return True
            if age_ms < 0 or age_ms >= self.ms:
                return True
        return 0 < self.size_bytes <= following_bytes


class Delay(NamedTuple):
    """Facts that the copy lag is compared with.

    `active_bytes` is the size of the active segment; `timestamp_ms` returns the largest timestamp
    of a segment, given its place among the closed ones.
    """

    lag: CopyLag
    now_ms: int
    active_bytes: int
    timestamp_ms: Callable[[int], int]


NO_DELAY: Final = Delay(CopyLag(), 0, 0, lambda _: 0)


class CopyPlan(NamedTuple):
    """Segments to copy, oldest first.

    `blocked` is the reason why the next one cannot be copied, if waiting does not help. `delayed`:
    the next one waits for the copy lag, which time alone may reach. `lag_bytes` and `lag_segments`
    count all closed segments without a copy, those that must wait included, as Kafka does.
    """

    segments: tuple[Copyable, ...]
    blocked: str = ""
    delayed: bool = False
    lag_bytes: int = 0
    lag_segments: int = 0


def plan_copy(
    cache: SegmentCache,
    lineage: Lineage,
    closed: Sequence[LocalSegment],
    *,
    log_start_offset: int,
    last_stable_offset: int,
    delay: Delay = NO_DELAY,
) -> CopyPlan:
    """Plan the leader's copies at once. `closed` are its segments without the last, by offset."""
    planning = plan_copy_steps(
        cache,
        lineage,
        closed,
        log_start_offset=log_start_offset,
        last_stable_offset=last_stable_offset,
        delay=delay,
    )
    while True:
        try:
            next(planning)
        except StopIteration as end:
            plan: CopyPlan = end.value
            return plan


def plan_copy_steps(
    cache: SegmentCache,
    lineage: Lineage,
    closed: Iterable[LocalSegment],
    *,
    log_start_offset: int,
    last_stable_offset: int,
    delay: Delay = NO_DELAY,
    most: int = sys.maxsize,
) -> Generator[None, None, CopyPlan]:
    """Plan as `plan_copy`, in steps of `STEP_SEGMENTS` segments; the generator returns the plan.

    The tier may change between two steps. The plan is then as old as its oldest step, and the
    copier checks each segment again before it copies it.

    Args:
        closed: is iterated twice, and not kept: a collection of so many objects takes longer than
            a step.
        most: segments in the plan; the others are only counted.
    """
    following_bytes = delay.active_bytes + (yield from _total_bytes(closed))
    found: list[Copyable] = []
    blocked, delayed, goes_on = "", False, True
    lag_bytes = lag_segments = 0
    for place, segment in enumerate(closed):
        if not place % STEP_SEGMENTS:
            yield
        following_bytes -= segment.size_bytes
        last = segment.next_offset - 1
        if segment.next_offset <= log_start_offset or not segment.size_bytes:
            continue
        first = max(segment.base_offset, log_start_offset)
        if cache.covers(lineage, first, last):
            continue
        lag_bytes += segment.size_bytes
        lag_segments += 1
        if segment.next_offset > last_stable_offset:
            goes_on = False
        if not goes_on:
            continue
        epochs = lineage.epochs_of(first, last)
        if not epochs:
            blocked = f"the leader epochs of {first}..{last} are not known"
        elif delay.lag.is_reached(
            partial(delay.timestamp_ms, place),
            now_ms=delay.now_ms,
            following_bytes=following_bytes,
        ):
            if len(found) < most:
                found.append(Copyable(segment, epochs))
            continue
        else:
            delayed = True
        goes_on = False
    return CopyPlan(tuple(found), blocked, delayed, lag_bytes, lag_segments)


def _total_bytes(closed: Iterable[LocalSegment]) -> Generator[None, None, int]:
    total = 0
    for place, segment in enumerate(closed):
        total += segment.size_bytes
        if not place % STEP_SEGMENTS:
            yield
    return total


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
    gone_to = min(cache.deleted_to(lineage), shared[0].offsets.first) if shared else 0
    start = max(log_start_offset, gone_to)
    return sum(
        segment.size_bytes
        for segment in segments
        if segment.next_offset > gone_to
        and not cache.covers(lineage, max(segment.base_offset, start), segment.next_offset - 1)
    )
