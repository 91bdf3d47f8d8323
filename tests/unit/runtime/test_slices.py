"""Slices of long work, which yield to the event loop."""

from __future__ import annotations

import asyncio

import pytest

from runtime.clock import ManualClock
from runtime.slices import SLICE_MS, SharedSlices, Slices, in_slices, result_in_slices
from testkit.loop_holds import ToilClock, loop_holds


@pytest.mark.parametrize("step_ms", [0.5, 3.0, 20.0])
async def test_no_hold_is_longer_than_a_slice_and_a_step(step_ms: float) -> None:
    clock = ToilClock()
    taken = 0

    def steps():
        nonlocal taken
        for _ in range(100):
            clock.toil(step_ms)
            taken += 1
            yield

    async with loop_holds(clock) as holds:
        await in_slices(steps(), clock)
    assert taken == 100
    assert holds.longest_ms <= SLICE_MS + step_ms


async def test_a_clock_that_stands_still_ends_slices_too() -> None:
    slices = Slices(ManualClock(), steps_max=10)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.ensure_future(other())
    for _ in range(100):
        await slices.breathe()
    task.cancel()
    assert turns in (9, 10)


async def test_all_work_that_shares_slices_has_one_of_them_per_iteration() -> None:
    clock = ToilClock()
    slices = SharedSlices(clock)

    async def work(steps: int) -> None:
        await slices.turn()
        for _ in range(steps):
            clock.toil(1.0)
            await slices.breathe()

    async with loop_holds(clock) as holds:
        await asyncio.gather(*(work(20) for _ in range(30)))
    assert holds.longest_ms <= SLICE_MS + 1.0


async def test_shared_slices_go_round() -> None:
    slices = SharedSlices(ManualClock(), steps_max=10)
    order: list[str] = []

    async def work(name: str) -> None:
        await slices.turn()
        for _ in range(3):
            order.append(name)
            await slices.breathe(10)

    await asyncio.gather(*(work(name) for name in "abc"))
    assert "".join(order) == "abcabcabc"


async def test_work_cancelled_while_waiting_for_slice_does_not_block_others() -> None:
    slices = SharedSlices(ManualClock())
    gone = asyncio.ensure_future(slices.turn())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(slices.turn(), 5)


async def test_result_in_slices_returns_the_result_and_holds_the_loop_for_a_slice() -> None:
    clock = ToilClock()

    def steps():
        for _ in range(100):
            clock.toil(1.0)
            yield
        return "done"

    async with loop_holds(clock) as holds:
        assert await result_in_slices(steps(), clock) == "done"
    assert holds.longest_ms <= SLICE_MS + 1.0
