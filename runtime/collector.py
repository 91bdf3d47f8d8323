"""Shell: The cyclic garbage collector of a process that holds much for long.

A full collection looks at every object that may be part of a cycle, without a turn for the loop in
between: with thousands of logs that is a tenth of a second, again whenever there is a quarter more.
So what survives one is frozen: the next looks only at what was made since, which is about seventy
thousand objects, however many logs and images there are.

A frozen object still dies when its last reference goes, as all that makes up logs, partitions,
images and connections does. A cycle that was frozen and dies later stays. So when there is half as
much frozen again as after the last time, everything is looked at once more: leaks stay below that,
and a process that does not grow never pays for it.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final

LOOK_EVERY_S: Final = 3_600.0
GROWTH: Final = 1.5
FULL_GENERATION: Final = 2


class Collector:
    """Freezes survivors between `start` and `stop`. One per process: the collector is."""

    def __init__(self) -> None:
        self._frozen = 0

    def start(self) -> None:
        """Costs nothing: what is there is taken for what stays."""
        gc.callbacks.append(_after)
        gc.freeze()

    def settle(self) -> None:
        """A start has made what it makes: that is how much there is from now on. What was frozen
        meanwhile is not looked at again: of ten thousand logs that takes 200 ms."""
        gc.collect()
        self._frozen = gc.get_freeze_count()

    def stop(self) -> None:
        """Everything is the collector's again."""
        gc.callbacks.remove(_after)
        gc.unfreeze()

    def look(self) -> bool:
        """Looks at everything if there is half as much again; whether it did."""
        if gc.get_freeze_count() < GROWTH * self._frozen:
            return False
        gc.unfreeze()
        self.settle()
        return True

    async def run(self) -> None:
        """Looks now and then."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()


def _after(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == FULL_GENERATION:
        gc.freeze()
