"""The copy lag of KIP-1241 compared with an independent model, on random cases."""

from __future__ import annotations

import random
from collections.abc import Iterator

from storage.log.epochs import EpochEntry
from storage.tiered.cache import SegmentCache
from storage.tiered.copying import (
    STEP_SEGMENTS,
    CopyLag,
    Delay,
    LocalSegment,
    plan_copy,
    plan_copy_steps,
)
from storage.tiered.lineage import Lineage
from testkit.records.tier import PARTITION

CASES = 10_000


def model(sizes: list[int], times: list[int], lag: CopyLag, now_ms: int) -> int:
    """Return how many of the closed segments are copied; the last size is the active one's."""
    for place, time_ms in enumerate(times):
        if 0 in (lag.ms, lag.size_bytes):
            continue
        old = lag.ms > 0 and not 0 <= now_ms - time_ms < lag.ms
        far = lag.size_bytes > 0 and sum(sizes[place + 1 :]) >= lag.size_bytes
        if not old and not far:
            return place
    return len(times)


def test_plan_copy_agrees_with_the_model_on_random_logs() -> None:
    rng = random.Random(1241)
    seen = set()
    for _ in range(CASES):
        count = rng.randint(0, 6)
        sizes = [rng.randint(1, 5) for _ in range(count)] + [rng.randint(0, 5)]
        times = [rng.randint(0, 12) for _ in range(count)]
        lag = CopyLag(rng.choice([-1, 0, 1, 5, 9]), rng.choice([-1, 0, 1, 6, 12]))
        now_ms = rng.randint(0, 12)
        closed = [LocalSegment(at, at + 1, size) for at, size in enumerate(sizes[:-1])]
        plan = plan_copy(
            SegmentCache(PARTITION),
            Lineage([EpochEntry(0, 0)], count + 1),
            closed,
            log_start_offset=0,
            last_stable_offset=count,
            delay=Delay(lag, now_ms, sizes[-1], times.__getitem__),
        )
        expected = model(sizes, times, lag, now_ms)
        assert [one.segment.base_offset for one in plan.segments] == list(range(expected)), lag
        assert plan.delayed is (expected < count)
        seen.add((expected, count, lag))
    assert len(seen) > 300, "the cases differ"


def test_planning_of_100_000_segments_examines_a_few_in_each_step() -> None:
    """A step must be short: the loop answers no request in between."""
    count, examined = 100_000, 0

    class Counting(SegmentCache):
        def covers(self, lineage: Lineage, first: int, last: int) -> bool:
            nonlocal examined
            examined += 1
            return first < count // 2

    class Closed:
        def __iter__(self) -> Iterator[LocalSegment]:
            nonlocal examined
            for at in range(count):
                examined += 1
                yield LocalSegment(at, at + 1, 1)

    planning = plan_copy_steps(
        Counting(PARTITION),
        Lineage([EpochEntry(0, 0)], count + 1),
        Closed(),
        log_start_offset=0,
        last_stable_offset=count,
        delay=Delay(CopyLag(), 0, 0, lambda _: 0),
        most=2,
    )
    before = 0
    while True:
        try:
            next(planning)
        except StopIteration as end:
            plan = end.value
            break
        assert examined - before <= 2 * STEP_SEGMENTS
        before = examined
    assert examined - before <= 2 * STEP_SEGMENTS
    assert examined == 3 * count
    assert (plan.lag_segments, len(plan.segments)) == (count // 2, 2)
