"""Shell: Long work on the loop, a slice at a time.

A loop that stands still answers nobody: no fetch, no heartbeat. Whoever has a thousand things to do
does them one by one and lets the others have a turn when a slice is over. A step that is small by
itself needs no more than that; one that grows with what is there has to be cut smaller first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from runtime.clock import Clock

SLICE_MS: Final = 5.0


class Slices:
    """Call `breathe` between two steps.

    A clock of simulated time stands still while code runs: there `steps_max` ends the slices.
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
        """Let the others have a turn if the slice is over."""
        self._steps += 1
        if self._steps >= self._steps_max or self._clock.monotonic_ms() >= self._ends_ms:
            await asyncio.sleep(0)
            self._begin()


async def in_slices(steps: Iterable[object], clock: Clock) -> None:
    """Take all steps."""
    slices = Slices(clock)
    for _ in steps:
        await slices.breathe()


class SharedSlices:
    """One slice per event-loop iteration for all work that takes its turns here, first come, first
    served. So a hundred long requests hold an iteration no longer than one does.

    Call `turn` before the first step and after every wait for something else; call `breathe`
    between two steps.
    """

    __slots__ = ("_clock", "_ends_ms", "_running", "_steps", "_steps_max", "_waiting")

    def __init__(self, clock: Clock, steps_max: int = 1_000) -> None:
        """A clock of simulated time stands still while code runs: there `steps_max` ends slices."""
        self._clock = clock
        self._steps_max = steps_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._running = False
        self._ends_ms = 0.0
        self._steps = 0

    async def turn(self) -> None:
        """Wait for a slice: an event-loop iteration in which nobody else here has one."""
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
