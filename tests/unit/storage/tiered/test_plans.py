"""Plans for copying, expiry and local retention, by cases; tests/property has the laws."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.log.epochs import EpochEntry
from storage.tiered.cache import SegmentCache
from storage.tiered.copying import (
    NO_DELAY,
    CopyLag,
    Delay,
    LocalSegment,
    local_only_bytes,
    plan_copy,
)
from storage.tiered.expiry import (
    ExpiryPlan,
    Reason,
    Retention,
    another_leads,
    plan_expiry,
    readable_from,
)
from storage.tiered.lineage import Lineage
from storage.tiered.states import SegmentState
from testkit.records.lineages import SmallCopy, SmallLog, copies, entries_of, logs, match
from testkit.records.tier import PARTITION, segment, segment_id, update

MINE = Lineage([EpochEntry(0, 0)], 50)
CLOSED = [LocalSegment(at, at + 10, 100) for at in range(0, 40, 10)]


def cache_of(*offsets: tuple[int, int], unfinished: int = 0) -> SegmentCache:
    """Return a cache of finished copies of epoch 0, numbered from 1, then `unfinished` ones of
    offset 0."""
    cache = SegmentCache(PARTITION)
    for number, (first, last) in enumerate(offsets, start=1):
        cache.apply(cache.next_offset, segment(number, first, last, max_timestamp_ms=last))
        cache.apply(cache.next_offset, update(number, SegmentState.COPY_FINISHED))
    for number in range(100, 100 + unfinished):
        cache.apply(cache.next_offset, segment(number, 0, 9, size_bytes=10_000))
    return cache


THREE = cache_of((0, 9), (10, 19), (20, 29))


@pytest.mark.parametrize(
    ("cache", "log_start", "stable", "expected"),
    [
        (cache_of(), 0, 50, [0, 10, 20, 30]),
        (cache_of(), 0, 29, [0, 10]),
        (cache_of(), 10, 50, [10, 20, 30]),
        (cache_of(), 15, 50, [10, 20, 30]),
        (cache_of((0, 9)), 0, 50, [10, 20, 30]),
        (cache_of((0, 14)), 0, 50, [10, 20, 30]),
        (cache_of((0, 25)), 0, 50, [20, 30]),
        (cache_of((0, 9), (20, 29)), 0, 50, [10, 30]),
        (cache_of(unfinished=3), 0, 50, [0, 10, 20, 30]),
    ],
)
def test_plan_copy_selects_closed_uncopied_segments_in_order(
    cache: SegmentCache, log_start: int, stable: int, expected: list[int]
) -> None:
    plan = plan_copy(cache, MINE, CLOSED, log_start_offset=log_start, last_stable_offset=stable)
    assert [one.segment.base_offset for one in plan.segments] == expected
    assert plan.blocked == ""


@pytest.mark.parametrize(
    ("cache", "stable", "lag_segments"),
    [
        (cache_of(), 50, 4),
        (cache_of(), 29, 4),
        (cache_of((0, 9)), 29, 3),
        (cache_of((0, 39)), 50, 0),
    ],
)
def test_copy_lag_counts_all_closed_segments_without_a_copy(
    cache: SegmentCache, stable: int, lag_segments: int
) -> None:
    """As in Kafka: segments that are not stable yet, or wait for the copy lag, count, too."""
    late = Delay(CopyLag(ms=10**6, size_bytes=10**6), 50, 0, lambda place: 10 * place)
    for delay in (NO_DELAY, late):
        plan = plan_copy(
            cache, MINE, CLOSED, log_start_offset=0, last_stable_offset=stable, delay=delay
        )
        assert (plan.lag_segments, plan.lag_bytes) == (lag_segments, 100 * lag_segments)


@pytest.mark.parametrize(
    ("lag", "expected", "delayed"),
    [
        (CopyLag(), [0, 10, 20, 30], False),
        (CopyLag(ms=0, size_bytes=10**6), [0, 10, 20, 30], False),
        (CopyLag(ms=10**6, size_bytes=0), [0, 10, 20, 30], False),
        (CopyLag(ms=-1, size_bytes=-1), [], True),
        (CopyLag(ms=31, size_bytes=-1), [0, 10], True),
        (CopyLag(ms=30, size_bytes=-1), [0, 10, 20], True),
        (CopyLag(ms=-1, size_bytes=250), [0, 10], True),
        (CopyLag(ms=-1, size_bytes=251), [0], True),
        (CopyLag(ms=31, size_bytes=350), [0, 10], True),
        (CopyLag(ms=51, size_bytes=150), [0, 10, 20], True),
    ],
)
def test_plan_copy_with_a_lag_ends_at_the_first_segment_before_it(
    lag: CopyLag, expected: list[int], delayed: bool
) -> None:
    """KIP-1241: at 50 ms the segments of 0, 10, 20 and 30 ms have ages of 50, 40, 30 and 20 ms,
    and 350, 250, 150 and 50 bytes behind them."""
    delay = Delay(lag, 50, 50, lambda place: 10 * place)
    plan = plan_copy(
        cache_of(), MINE, CLOSED, log_start_offset=0, last_stable_offset=50, delay=delay
    )
    assert [one.segment.base_offset for one in plan.segments] == expected
    assert plan.delayed is delayed
    assert plan.lag_segments == 4


def test_plan_copy_with_old_segments_behind_a_young_one_ends_at_the_young_one() -> None:
    """Segments are copied in order, although a later one has an older timestamp."""
    times = [0, 45, 0, 0]
    delay = Delay(CopyLag(ms=10), 50, 0, times.__getitem__)
    plan = plan_copy(
        cache_of(), MINE, CLOSED, log_start_offset=0, last_stable_offset=50, delay=delay
    )
    assert [one.segment.base_offset for one in plan.segments] == [0]


def test_is_reached_with_a_timestamp_ahead_of_the_clock_or_unreadable_is_true() -> None:
    lag = CopyLag(ms=10, size_bytes=-1)

    def unreadable() -> int:
        raise OSError("the disk does not answer")

    assert lag.is_reached(lambda: 51, now_ms=50, following_bytes=0)
    assert not lag.is_reached(lambda: 50, now_ms=50, following_bytes=0)
    assert lag.is_reached(unreadable, now_ms=50, following_bytes=0)


def test_a_segment_whose_epochs_are_not_known_is_not_copied() -> None:
    mine = Lineage([EpochEntry(3, 15)], 50)
    plan = plan_copy(cache_of(), mine, CLOSED, log_start_offset=0, last_stable_offset=50)
    assert plan.segments == ()
    assert plan.blocked == "the leader epochs of 0..9 are not known"
    plan = plan_copy(cache_of(), mine, CLOSED, log_start_offset=15, last_stable_offset=50)
    assert [one.epochs for one in plan.segments] == [((3, 15),), ((3, 20),), ((3, 30),)]


def expiry(
    cache: SegmentCache, retention: Retention, *, local: int = 0, now_ms: int = 100, mark: int = 50
) -> ExpiryPlan:
    return plan_expiry(
        cache,
        MINE,
        retention,
        now_ms=now_ms,
        log_start_offset=0,
        local_start_offset=0,
        high_watermark=mark,
        local_only_bytes=local,
    )


@pytest.mark.parametrize(
    ("retention", "local", "expected"),
    [
        (Retention(), 0, 0),
        (Retention(ms=100), 0, 0),
        (Retention(ms=91), 0, 0),
        (Retention(ms=90), 0, 1),
        (Retention(ms=80), 0, 2),
        (Retention(ms=0), 0, 3),
        (Retention(bytes=300), 0, 0),
        (Retention(bytes=201), 0, 0),
        (Retention(bytes=200), 0, 1),
        (Retention(bytes=0), 0, 3),
        (Retention(bytes=300), 99, 0),
        (Retention(bytes=300), 100, 1),
        (Retention(bytes=300), 900, 3),
        (Retention(bytes=300, ms=80), 100, 2),
    ],
)
def test_s3_plan_expiry_deletes_the_oldest_segments_over_retention(
    retention: Retention, local: int, expected: int
) -> None:
    """S3: remote and local-only bytes count together, each segment once."""
    plan = expiry(THREE, retention, local=local)
    assert [one.segment.segment_id for one in plan.deletions] == [
        segment_id(number) for number in range(1, expected + 1)
    ]
    assert plan.log_start_offset == 10 * expected


@pytest.mark.parametrize(
    ("limit", "log_start", "deleted"),
    [(401, 0, []), (300, 10, [1]), (101, 10, [1]), (100, 20, [1, 2, 3]), (0, 30, [1, 2, 3, 4])],
)
def test_a_segment_that_was_copied_twice_goes_at_once(
    limit: int, log_start: int, deleted: list[int]
) -> None:
    """S3: the rest is not below `retention.bytes` (seed 1345)."""
    cache = cache_of((0, 9), (10, 19), (10, 19), (20, 29))
    plan = expiry(cache, Retention(bytes=limit))
    assert plan.log_start_offset == log_start
    assert [one.segment.segment_id for one in plan.deletions] == [*map(segment_id, deleted)]


def test_a_copy_within_another_goes_with_it() -> None:
    """S3: the copies of two leaders overlap, and the log start passes both."""
    cache = cache_of((0, 29), (10, 19), (25, 39))
    for limit, log_start in ((101, 0), (100, 30)):
        assert expiry(cache, Retention(bytes=limit)).log_start_offset == log_start


def test_dangling_copies_go_and_do_not_count() -> None:
    """KAFKA-17062: two unfinished copies, each larger than the limit."""
    cache = cache_of((0, 9), (10, 19), unfinished=2)
    plan = expiry(cache, Retention(bytes=200))
    assert {(one.segment.segment_id, one.reason) for one in plan.deletions} == {
        (segment_id(100), Reason.UNFINISHED),
        (segment_id(101), Reason.UNFINISHED),
    }
    assert plan.log_start_offset == 0


@pytest.mark.parametrize(
    ("finished", "log_start", "local_start", "goes"),
    [
        ([(0, 9)], 0, 0, True),
        ([], 0, 0, False),
        ([(0, 8)], 0, 0, False),
        ([(1, 9)], 0, 0, False),
        ([(0, 4), (5, 12)], 0, 0, True),
        ([(1, 9)], 1, 0, True),
        ([(1, 9)], 0, 1, False),  # the metadata topic has lost its COPY_FINISHED
        ([], 10, 0, True),
        ([], 9, 0, False),
        ([], 0, 10, False),
    ],
)
def test_an_unfinished_copy_goes_after_its_records_have_another(
    finished: list[tuple[int, int]], log_start: int, local_start: int, goes: bool
) -> None:
    """S2: its COPY_FINISHED may be under way.

    A follower that reads it removes local segments before it reads the DELETE_STARTED behind it
    (tiered seed 131).
    """
    plan = plan_expiry(
        cache_of(*finished, unfinished=1),
        MINE,
        Retention(),
        now_ms=0,
        log_start_offset=log_start,
        local_start_offset=local_start,
        high_watermark=50,
        local_only_bytes=0,
    )
    unfinished = [one for one in plan.deletions if one.reason is Reason.UNFINISHED]
    assert bool(unfinished) == goes


@pytest.mark.parametrize(("deleted", "goes"), [((0, 9), True), ((0, 8), False), ((0, 19), True)])
def test_unfinished_copy_of_what_was_deleted_goes(deleted: tuple[int, int], goes: bool) -> None:
    """S3: an earlier leader deleted these offsets, and this log's start is still below them.

    S2: without a record of that deletion, the copy may be the only one.
    """
    cache = cache_of(deleted, unfinished=1)
    for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
        cache.apply(cache.next_offset, update(1, state))
    plan = plan_expiry(
        cache,
        MINE,
        Retention(),
        now_ms=0,
        log_start_offset=0,
        local_start_offset=10,
        high_watermark=50,
        local_only_bytes=0,
    )
    assert [one.reason for one in plan.deletions] == [Reason.UNFINISHED] * goes


def test_an_unfinished_copy_of_another_lineage_goes_at_once() -> None:
    cache = SegmentCache(PARTITION)
    cache.apply(0, segment(100, 0, 9, {5: 0}))
    assert [one.reason for one in expiry(cache, Retention()).deletions] == [Reason.UNFINISHED]


def test_plan_expiry_keeps_segments_that_are_being_copied() -> None:
    plan = plan_expiry(
        cache_of((0, 9), unfinished=2),
        MINE,
        Retention(),
        now_ms=0,
        log_start_offset=0,
        local_start_offset=0,
        high_watermark=50,
        local_only_bytes=0,
        being_copied={segment_id(101)},
    )
    assert [one.segment.segment_id for one in plan.deletions] == [segment_id(100)]


def test_a_deletion_that_was_begun_is_ended() -> None:
    cache = cache_of((0, 9))
    cache.apply(cache.next_offset, update(1, SegmentState.DELETE_STARTED))
    plan = expiry(cache, Retention())
    assert [one.reason for one in plan.deletions] == [Reason.AGAIN]


def test_the_log_start_does_not_pass_the_high_watermark() -> None:
    plan = expiry(THREE, Retention(bytes=0), mark=19)
    assert plan.log_start_offset == 10
    assert len(plan.deletions) == 1


def test_overlapping_copies_expire_with_a_log_start_that_holds() -> None:
    """S4, KAFKA-16890: the longer copy goes only when all of it is below the log start."""
    cache = cache_of((0, 9), (5, 24), (10, 19))
    for limit in (200, 100):
        plan = expiry(cache, Retention(bytes=limit))
        assert plan.log_start_offset == 10
        assert [one.segment.segment_id for one in plan.deletions] == [segment_id(1)]
    plan = expiry(cache, Retention(bytes=0))
    assert plan.log_start_offset == 25
    assert [one.reason for one in plan.deletions] == [Reason.SIZE] * 3


def deleted_of(cache: SegmentCache, *numbers: int, ended: bool = True) -> SegmentCache:
    """Return the cache after the deletion of these segments, or after its start."""
    for number in numbers:
        cache.apply(cache.next_offset, update(number, SegmentState.DELETE_STARTED))
        if ended:
            cache.apply(cache.next_offset, update(number, SegmentState.DELETE_FINISHED))
    return cache


@pytest.mark.parametrize(
    ("cache", "log_start", "expected"),
    [
        (deleted_of(cache_of((0, 9), (10, 19), (20, 29)), 1), 0, 10),
        (deleted_of(cache_of((0, 9), (10, 19), (20, 29)), 1, 2, ended=False), 0, 20),
        (deleted_of(cache_of((0, 9), (10, 19), (20, 29)), 1, 2, 3), 5, 30),
        (cache_of((0, 9), (10, 19), (20, 29)), 5, 5),
        # The metadata topic was lost, and is empty or only partly rewritten.
        (cache_of(), 0, 0),
        (cache_of((20, 29)), 0, 0),
        (cache_of((0, 9)), 12, 12),
        (deleted_of(cache_of((0, 9)), 1), 12, 12),
        # No leader may skip records that a copy may still have.
        (deleted_of(cache_of((0, 9), (10, 19), (20, 29), unfinished=1), 1), 0, 0),
    ],
)
def test_s4_readable_from_passes_the_log_start_only_over_deletions(
    cache: SegmentCache, log_start: int, expected: int
) -> None:
    found = readable_from(cache, MINE, log_start_offset=log_start, local_start_offset=30)
    assert found == expected


def test_lineages_that_lost_go_and_those_that_are_not_known_stay() -> None:
    cache = SegmentCache(PARTITION)
    for number, epochs in ((1, {1: 10}), (2, {1: 30}), (3, {9: 40})):
        start = next(iter(epochs.values()))
        cache.apply(cache.next_offset, segment(number, start, start + 9, epochs))
        cache.apply(cache.next_offset, update(number, SegmentState.COPY_FINISHED))
    mine = Lineage([EpochEntry(2, 25)], 60)
    plan = plan_expiry(
        cache,
        mine,
        Retention(),
        now_ms=0,
        log_start_offset=0,
        local_start_offset=0,
        high_watermark=60,
        local_only_bytes=0,
    )
    assert [(one.segment.segment_id, one.reason) for one in plan.deletions] == [
        (segment_id(2), Reason.LOST)
    ]


@pytest.mark.parametrize(
    ("cache", "first", "expected"),
    [
        (THREE, 0, 30),
        (THREE, 5, 30),
        (THREE, 30, 30),
        (cache_of((0, 9), (11, 29)), 0, 10),
        (cache_of((0, 14), (5, 29)), 0, 30),
        (cache_of((0, 70)), 0, 50),
        (cache_of(unfinished=1), 0, 0),
    ],
)
def test_how_far_the_tier_has_a_log(cache: SegmentCache, first: int, expected: int) -> None:
    """S2: unfinished copies, and copies behind a gap, do not count."""
    assert cache.covered_to(MINE, first, 49) == expected


def test_bytes_that_are_only_local() -> None:
    local = [*CLOSED, LocalSegment(40, 50, 70), LocalSegment(50, 50, 0)]
    assert local_only_bytes(THREE, MINE, local, log_start_offset=0) == 170
    assert local_only_bytes(cache_of(), MINE, local, log_start_offset=15) == 370


def test_s3_local_only_bytes_exclude_segments_deleted_by_another_leader() -> None:
    """S3: this leader does not know the log start of that leader yet (tiered seed 461).

    If these segments counted, it would delete as many bytes once more.
    """
    cache = cache_of((0, 9), (10, 19), (20, 29))
    local = [*CLOSED, LocalSegment(40, 50, 70), LocalSegment(50, 50, 0)]
    before = local_only_bytes(cache, MINE, local, log_start_offset=0)
    for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
        cache.apply(cache.next_offset, update(1, state))
        assert local_only_bytes(cache, MINE, local, log_start_offset=0) == before


def logs_with_a_copy() -> Iterator[tuple[SmallLog, SmallCopy]]:
    """Yield all small logs, each with any copy that a replica of its partition may have made."""
    every = list(copies(3))
    for log in logs(3):
        for copy in every:
            if match(log, copy):
                yield log, copy


def cache_with(copy: SmallCopy, state: SegmentState) -> SegmentCache:
    """Return a cache that has read records of this copy up to `state`."""
    cache = SegmentCache(PARTITION)
    cache.apply(0, copy.segment(1))
    if state is not SegmentState.COPY_STARTED:
        cache.apply(1, update(1, state))
    return cache


def shared_offsets(log: SmallLog, copy: SmallCopy) -> set[int]:
    return {at for at in range(log.end) if log.known(at) == copy.known(at) != -1}


def test_copy_plan_has_every_closed_segment_whose_records_no_copy_has() -> None:
    """S2: a copy of several epochs that the log shares in part leaves the rest to be copied."""
    copied = 0
    for log, copy in logs_with_a_copy():
        cache, lineage = cache_with(copy, SegmentState.COPY_FINISHED), log.lineage
        having = shared_offsets(log, copy)
        for cut in range(1, log.end):
            closed = [LocalSegment(0, cut, 10), LocalSegment(cut, log.end, 10)]
            for log_start in {log.known_from, 0}:
                plan = plan_copy(
                    cache,
                    lineage,
                    closed,
                    log_start_offset=log_start,
                    last_stable_offset=log.end,
                )
                expected = []
                blocked = False
                for base, end in ((0, cut), (cut, log.end)):
                    offsets = range(max(base, log_start), end)
                    if not offsets or having >= set(offsets):
                        continue
                    if offsets[0] < log.known_from:
                        blocked = True
                        break
                    epochs = entries_of(log.history, offsets[0], end - 1)
                    expected.append((base, epochs))
                found = [(one.segment.base_offset, one.epochs) for one in plan.segments]
                assert (found, bool(plan.blocked)) == (expected, blocked), (log, copy, cut)
                copied += len(found)
    assert copied > 1000


def plan_without_retention(
    log: SmallLog, cache: SegmentCache, log_start: int, local_start: int
) -> ExpiryPlan:
    return plan_expiry(
        cache,
        log.lineage,
        Retention(),
        now_ms=0,
        log_start_offset=log_start,
        local_start_offset=local_start,
        high_watermark=log.end,
        local_only_bytes=0,
    )


def test_expiry_without_retention_takes_what_is_below_the_log_start_or_surely_lost() -> None:
    """S2, S4: a finished copy that the log shares in part stays until the log start passes that
    part.

    The rest of it is lost once the log has continued with other records.
    """
    reasons: dict[Reason | None, int] = {}
    for log, copy in logs_with_a_copy():
        cache, segment_of_it = cache_with(copy, SegmentState.COPY_FINISHED), copy.segment(1)
        useful = shared_offsets(log, copy)
        settled = log.lineage.settled(segment_of_it)
        judged = log.latest_epoch != -1 and copy.end >= log.lineage.start_offset
        for log_start in range(log.end + 1):
            plan = plan_without_retention(log, cache, log_start, log_start)
            assert plan.log_start_offset == log_start
            reason = None
            if copy.end < log_start:
                reason = Reason.LOG_START
            elif settled and (useful or judged) and all(at < log_start for at in useful):
                reason = Reason.LOST
            found = plan.deletions[0].reason if plan.deletions else None
            assert found is reason, (log, copy, log_start)
            reasons[reason] = reasons.get(reason, 0) + 1
    assert all(reasons.get(one, 0) > 100 for one in (None, Reason.LOG_START, Reason.LOST))


DELETED = (
    SmallCopy((1,), 0, 0),
    SmallCopy((1, 1, 1), 1, 1),
    SmallCopy((1, 1, 1), 2, 2),
    SmallCopy((1, 3, 3), 1, 1),
)
"""Copies that were deleted: of the same log, or of one that lost and reached further."""


def cache_after_deletion(gone: SmallCopy) -> SegmentCache:
    """Return a cache that has read of a copy and of its whole deletion."""
    cache = SegmentCache(PARTITION)
    cache.apply(0, gone.segment(9))
    for number, state in enumerate(list(SegmentState)[1:], start=1):
        cache.apply(number, update(9, state))
    return cache


def deleted_to(log: SmallLog, gone: SmallCopy) -> int:
    return max(shared_offsets(log, gone), default=-1) + 1


def test_expiry_keeps_an_unfinished_copy_as_long_as_no_other_copy_has_its_records() -> None:
    """S2, S6: its COPY_FINISHED may be under way, or lost with the end of the metadata topic.

    This also holds for a copy that the log shares in part. Records of this log that were deleted
    from the tier need no copy; deletions of a log that lost do not count.
    """
    further = 0
    for log, copy in logs_with_a_copy():
        kept = cache_with(copy, SegmentState.COPY_STARTED)
        cases = [(kept, 0)]
        for gone in DELETED:
            if match(log, gone):
                deleted = cache_after_deletion(gone)
                deleted.apply(deleted.next_offset, copy.segment(1))
                cases.append((deleted, deleted_to(log, gone)))
                further += cases[-1][1] <= gone.end
        for log_start in range(log.known_from, log.end + 1):
            for local_start in range(log_start, log.end + 1):
                for cache, gone_to in cases:
                    first = max(log_start, min(local_start, gone_to))
                    needed = {at for at in shared_offsets(log, copy) if at >= first}
                    plan = plan_without_retention(log, cache, log_start, local_start)
                    assert bool(plan.deletions) == (not needed), (log, copy, first)
    assert further > 100


def test_log_start_stays_while_an_unfinished_copy_ends_exactly_there() -> None:
    """S4: the copy may be the only one that has the record at the log start."""
    cache = deleted_of(cache_of((0, 9), (10, 19), (20, 29), unfinished=1), 1)
    assert readable_from(cache, MINE, log_start_offset=9, local_start_offset=30) == 9
    assert readable_from(cache, MINE, log_start_offset=10, local_start_offset=30) == 10
    cache = deleted_of(cache_of((0, 9), (10, 19), (20, 29)), 1)
    assert readable_from(cache, MINE, log_start_offset=9, local_start_offset=30) == 10


def test_log_start_passes_a_gap_only_if_copies_of_this_log_were_deleted_there() -> None:
    """S4: metadata that were lost contain no deletion, even if a log that lost reached further."""
    passed = 0
    for log in logs(3):
        if log.known_from or not log.end:
            continue
        for gone in DELETED:
            if not match(log, gone):
                continue
            cache, local_start = cache_after_deletion(gone), log.end
            readable = readable_from(
                cache, log.lineage, log_start_offset=0, local_start_offset=local_start
            )
            assert readable == (local_start if deleted_to(log, gone) >= local_start else 0)
            passed += readable > 0
    assert passed


def test_another_leads_once_any_record_of_a_copy_is_of_a_later_epoch() -> None:
    """S2, S6: a copy that begins in this leader's epoch, or before, may end in a later one."""
    for copy in copies(3):
        for state in (SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED):
            cache = cache_with(copy, state)
            for epoch in range(5):
                later = any(one > epoch for one in copy.history[copy.start :])
                assert another_leads(cache, epoch) == later, (copy, epoch)
