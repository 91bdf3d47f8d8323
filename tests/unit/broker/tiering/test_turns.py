"""Turns: a changing limit, and waiters that stop waiting."""

from __future__ import annotations

import asyncio

from broker.tiering.turns import Turns
from testkit.memory.broker import settle


class World:
    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.turns = Turns(lambda: self.at_once)
        self.begun: list[int] = []
        self.ends = [asyncio.Event() for _ in range(6)]
        self.tasks = [asyncio.ensure_future(self._one(number)) for number in range(6)]

    async def _one(self, number: int) -> None:
        async with self.turns:
            self.begun.append(number)
            await self.ends[number].wait()

    async def end(self, *numbers: int) -> None:
        for number in numbers:
            self.ends[number].set()
        await settle()


async def test_first_come_first_served_up_to_the_limit_of_the_day() -> None:
    world = World(2)
    await settle()
    assert world.begun == [0, 1]
    await world.end(1)
    assert world.begun == [0, 1, 2]
    world.at_once = 3
    world.turns.reconfigured()
    await settle()
    assert world.begun == [0, 1, 2, 3]
    world.at_once = 1
    await world.end(0, 2)
    assert world.begun == [0, 1, 2, 3], "one still has its turn"
    await world.end(3)
    assert world.begun == [0, 1, 2, 3, 4]
    await world.end(4, 5)
    await asyncio.gather(*world.tasks)


async def test_cancelled_waiter_takes_no_turn() -> None:
    world = World(1)
    await settle()
    world.tasks[1].cancel()
    await world.end(0)
    assert world.begun == [0, 2]
    await world.end(2, 3, 4, 5)
    await asyncio.wait(world.tasks)


async def test_a_turn_that_came_with_the_cancellation_is_given_back() -> None:
    world = World(1)
    await settle()
    world.tasks[0].cancel()
    await asyncio.sleep(0)  # it has ended, and the next one has not begun
    assert world.begun == [0]
    world.tasks[1].cancel()
    await settle()
    assert world.begun == [0, 2]
    await world.end(2, 3, 4, 5)
    await asyncio.wait(world.tasks)
