"""Shell: Long work on the loop, a slice at a time.

A loop that stands still answers nobody: no fetch, no heartbeat. Whoever has a thousand things to do
does them one by one and lets the others have a turn when a slice is over. A step that is small by
itself needs no more than that; one that grows with what is there has to be cut smaller first.
"""

from __future__ import annotations

import asyncio
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
