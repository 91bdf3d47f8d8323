"""Each fault of a process in a cluster: it takes effect as named, and promises hold."""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import Any
from unittest import mock

import pytest

from simulation.event import Event
from simulation.faults import KINDS
from simulation.judges.partition_judge import PartitionJudge
from simulation.swarm import run
from simulation.world.cluster import MachineClock, NodeLife
from simulation.world.life import CURRENT_LIFE, Life
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

ARGS: dict[str, dict[str, Any]] = {
    "pause": {},
    "slow process": {"cost_ms": 2.0},
    "clock jump": {"by_ms": -3_000_000},
    "coordinator's clock": {"by_ms": 3_000_000},
    "clock drift": {"rate": -0.9},
    "power cut": {"torn": True, "dark": True},
    "crash": {"after": 7, "cut": False},
    "kill": {"for_ms": 1},
    "second process": {},
    "taken port": {},
}
ENDING = ("kill", "power cut", "crash")


def test_each_fault_takes_effect_and_every_promise_holds() -> None:
    assert set(ARGS) == {name for name, kind in KINDS.items() if kind.family == "process"}
    events = tuple(
        Event(kind, 100 + 3_500 * number, kind, "node 2", {"for_ms": 500, **args})
        for number, (kind, args) in enumerate(ARGS.items())
    )
    ends: list[tuple[str, Any]] = []

    def ending(_judge: PartitionJudge, life: NodeLife) -> None:
        """Record that the life and its files still exist, and that the call comes from outside of
        it."""
        ends.append((str(life), (life.alive, life.machine.files is None, CURRENT_LIFE.get())))

    with mock.patch.object(PartitionJudge, "ending", ending):
        outcome = run(schedule(*events, quiet_from_ms=30_000))
    assert outcome.broken is None, outcome.broken
    assert [how for _, how in ends] == [(True, False, None)] * len(ENDING)
    assert outcome.took_effect == dict.fromkeys(ARGS, 1)
    assert outcome.counts["boots"] == len(outcome.schedule.shape.nodes) + len(ENDING) + 2
    assert outcome.marks["controller.duplicate-broker"]


def test_a_second_process_ends_before_a_session_may_end() -> None:
    """A process that registers after the first one's session has expired is within its rights."""
    second = Event("second", 100, "second process", "node 2", {"for_ms": 2_500})
    cut = Event("cut", 300, "cut", "node 1", {"for_ms": 2_000, "from": "all"})
    outcome = run(schedule(second, cut))
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {"second process": 1, "cut": 1}


def test_a_slow_process_takes_its_time_for_each_callback_and_keeps_their_order() -> None:
    loop = VirtualLoop(Network(random.Random(1)))
    life = Life("server", 1)
    life.cost_s = 0.1
    seen: list[tuple[int, float]] = []

    def note(number: int) -> None:
        seen.append((number, loop.time()))

    async def story() -> None:
        context = contextvars.copy_context()
        context.run(CURRENT_LIFE.set, life)
        for number in range(4):
            loop.call_soon(note, number, context=context.copy())
        loop.call_later(0.15, note, 4, context=context.copy())
        await asyncio.sleep(0.25)
        life.cost_s = 0.0
        await asyncio.sleep(1)

    loop.run_world(story())
    loop.close()
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    assert [at_s for _, at_s in seen] == pytest.approx([0, 0.1, 0.2, 0.3, 0.3])
    assert life.waited > 3


def test_a_clock_that_drifts_keeps_what_it_has_gained() -> None:
    loop = VirtualLoop(Network(random.Random(1)))
    clock = MachineClock(loop)
    seen: list[int] = []

    async def story() -> None:
        begin_ms = clock.now_ms()
        for rate in (0.5, 0.0, -0.5):
            clock.drift(rate)
            await asyncio.sleep(2)
            seen.append(clock.now_ms() - begin_ms)

    loop.run_until_complete(story())
    loop.close()
    assert seen == [3000, 5000, 6000]
