"""Passes over partitions: intervals, concurrency, and backoff after failures."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any

from broker.tiering.rounds import Pace, Rounds
from runtime.clock import LoopClock
from runtime.tasks import Supervisor
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from testkit.memory.logs import T0

PACE = Pace(at_once=2, interval_ms=30_000, backoff_ms=500, backoff_max_ms=4_000, jitter=0.2)


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on virtual time."""

    @functools.wraps(test)
    def run() -> None:
        loop = VirtualLoop(Network(random.Random(1)))
        try:
            loop.run_world(test())
        finally:
            loop.close()
        assert loop.failures == []

    return run


class World:
    """Rounds over names, and the start times of their passes in seconds."""

    def __init__(self) -> None:
        self.began: list[tuple[float, str]] = []
        self.pace = PACE
        self.takes_s = 0.0
        self.fails: dict[str, int] = {}
        self.more: dict[str, int] = {}
        self.failed: list[str] = []
        self.running = self.most = 0
        loop = asyncio.get_running_loop()
        self.supervisor = Supervisor()
        self.rounds: Rounds[str] = Rounds(
            "test",
            self.one_pass,
            pace=lambda: self.pace,
            failed=lambda key, error: self.failed.append(f"{key}: {error}"),
            supervisor=self.supervisor,
            clock=LoopClock(loop, T0),
            rng=random.Random(1),
        )

    async def one_pass(self, key: str) -> bool:
        self.began.append((round(asyncio.get_running_loop().time(), 3), key))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.running -= 1
        if self.fails.get(key):
            self.fails[key] -= 1
            raise OSError("the store")
        if self.more.get(key):
            self.more[key] -= 1
            return True
        return False

    def times(self, key: str) -> list[float]:
        begun = self.began[0][0]
        return [round(at - begun, 3) for at, name in self.began if name == key]


@virtual
async def test_a_pass_at_once_and_then_at_the_interval() -> None:
    world = World()
    world.rounds.add("a")
    world.rounds.add("a")
    await asyncio.sleep(61)
    assert world.times("a") == [0.0, 30.0, 60.0]


@virtual
async def test_passes_at_once_follow_the_newest_settings() -> None:
    world = World()
    world.takes_s = 1.0
    for name in "abcd":
        world.rounds.add(name)
    await asyncio.sleep(1.5)
    assert (world.most, world.rounds.running) == (2, 2)
    world.pace = PACE._replace(at_once=4)
    for name in "efgh":
        world.rounds.add(name)
    await asyncio.sleep(0.1)
    assert world.rounds.running == 4
    world.pace = PACE._replace(at_once=1)
    await asyncio.sleep(10)
    assert len(world.began) == 8
    assert world.rounds.busy_ms == 8000.0


@virtual
async def test_more_settings_begin_what_waits() -> None:
    world = World()
    world.takes_s = 100.0
    for name in "abcd":
        world.rounds.add(name)
    await asyncio.sleep(1)
    assert world.rounds.running == 2
    world.pace = PACE._replace(at_once=3)
    world.rounds.reconfigured()
    await asyncio.sleep(1)
    assert world.rounds.running == 3
    await world.rounds.close()


@virtual
async def test_key_with_more_to_do_is_queued_behind_the_others() -> None:
    world = World()
    world.pace = PACE._replace(at_once=1)
    world.more = {"a": 2}
    world.takes_s = 1.0
    world.rounds.add("a")
    world.rounds.add("b")
    await asyncio.sleep(10)
    assert [name for _, name in world.began] == ["a", "b", "a", "a"]


@virtual
async def test_pauses_after_failures_grow_to_a_limit() -> None:
    world = World()
    world.fails = {"a": 6}
    world.rounds.add("a")
    await asyncio.sleep(60)
    times = world.times("a")
    pauses = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    expected = [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 30.0]
    for pause, wanted in zip(pauses, expected, strict=False):
        assert 0.8 * wanted <= pause + 0.01 and pause <= 1.2 * wanted + 0.01
    assert len(world.failed) == 6
    assert len(set(pauses[3:6])) > 1, "jitter"


@virtual
async def test_news_bring_the_next_pass_forward_but_not_that_of_a_store_that_is_down() -> None:
    world = World()
    world.rounds.add("a")
    await asyncio.sleep(1)
    world.rounds.nudge("a")
    world.rounds.nudge("nobody")
    await asyncio.sleep(1)
    assert world.times("a") == [0.0, 1.0]
    world.fails = {"a": 1}
    world.rounds.nudge("a")
    await asyncio.sleep(0.1)
    world.rounds.nudge("a")
    await asyncio.sleep(0.1)
    assert len(world.began) == 3


@virtual
async def test_removed_key_has_no_further_pass() -> None:
    world = World()
    world.takes_s = 1.0
    world.rounds.add("a")
    await asyncio.sleep(0.5)
    world.rounds.remove("a")
    await asyncio.sleep(60)
    assert len(world.began) == 1
    world.rounds.add("a")
    await asyncio.sleep(0.5)
    world.rounds.remove("a")
    world.rounds.add("a")
    await asyncio.sleep(5)
    assert len(world.began) == 3, "a new leadership does not wait for the old one's pass"


@virtual
async def test_closing_ends_what_is_under_way() -> None:
    world = World()
    world.takes_s = 100.0
    world.rounds.add("a")
    world.rounds.add("b")
    await asyncio.sleep(1)
    await world.rounds.close()
    assert world.rounds.running == world.running == 0
    world.rounds.add("c")
    await asyncio.sleep(100)
    assert len(world.began) == 2
    assert world.failed == []
