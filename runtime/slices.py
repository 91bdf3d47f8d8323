"""Shell: Long work on the event loop, one time slice at a time.

A blocked event loop answers no request: no fetch, no heartbeat. Code with a thousand steps runs
them one by one, and yields to the loop when its slice is over. That suffices for small steps. A
step whose size grows with the data must first be divided.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from typing import Final, TypeVar

from runtime.clock import Clock

SLICE_MS: Final = 5.0
R = TypeVar("R")


class Slices:
    """A time slice; call `breathe` between two steps.

    A simulated clock does not advance while code runs: there `steps_max` ends the slices.
    """

    __slots__ = ("_clock", "_ends_ms", "_steps", "_steps_max")

    def __init__(self, clock: Clock, steps_max: int = 1_000) -> None:
        self._clock = clock
        self._steps_max = steps_max
        self._begin()

    def _begin(self) -> None:
        self._ends_ms = self._clock.monotonic_ms() + SLICE_MS
        self._steps = 0

    async def breathe(self) -> None:
        """Yield to the event loop if the slice is over."""
        self._steps += 1
        if self._steps >= self._steps_max or self._clock.monotonic_ms() >= self._ends_ms:
            await asyncio.sleep(0)
            self._begin()


async def in_slices(steps: Iterable[object], clock: Clock) -> None:
    """Run all steps, in slices."""
    slices = Slices(clock)
    for _ in steps:
        await slices.breathe()


async def result_in_slices(steps: Generator[object, None, R], clock: Clock) -> R:
    """Run all steps, in slices. Returns: the result of the generator."""
    slices = Slices(clock)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        await slices.breathe()


class SharedSlices:
    """One slice per event-loop iteration for all callers, first come, first served.

    So a hundred long requests hold an iteration no longer than one does. Call `turn` before the
    first step and after every wait for something else; call `breathe` between two steps.
    """

    __slots__ = ("_clock", "_ends_ms", "_running", "_steps", "_steps_max", "_waiting")

    def __init__(self, clock: Clock, steps_max: int = 1_000) -> None:
        """A simulated clock does not advance while code runs: there `steps_max` ends the slices."""
        self._clock = clock
        self._steps_max = steps_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._running = False
        self._ends_ms = 0.0
        self._steps = 0

    async def turn(self) -> None:
        """Wait for a slice: an event-loop iteration in which no other caller has one."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._running:
            self._running = True
            loop.call_soon(self._next)
        await turn

    async def breathe(self, steps: int = 1) -> None:
        """Count `steps`; wait for another slice if this one is over."""
        self._steps += steps
        if self._steps >= self._steps_max or self._clock.monotonic_ms() >= self._ends_ms:
            await self.turn()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._steps = 0
                self._ends_ms = self._clock.monotonic_ms() + SLICE_MS
                turn.set_result(None)
                break
        self._running = bool(self._waiting)
        if self._running:
            asyncio.get_running_loop().call_soon(self._next)
