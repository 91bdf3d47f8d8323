"""Shell: The cyclic garbage collector of a process with many long-lived objects.

A full collection visits every object that may be part of a cycle, and blocks the event loop. With
thousands of logs that takes a tenth of a second, each time the number of objects has grown by a
quarter. So the survivors of a collection are frozen. The next one visits only objects created
since, about seventy thousand, however many logs and images there are.

A frozen object is still freed when its last reference goes, as with all parts of logs, partitions,
images and connections. A frozen cycle that becomes garbage stays in memory. So when the number of
frozen objects has grown by half, everything is collected once more. This bounds leaks, and a
process that does not grow never pays for it. The number is looked at every hour, and every half
minute while objects are spared: freezing them freezes unfinished tasks, too, whose cycles are
garbage soon afterwards.

Objects that are made in large numbers without cycles, such as the elements of a decoded list, are
frozen as soon as they exist (`spared`). No collection then visits them while they are served: for
400,000 elements that took 10 ms each time, and 60 ms in a full collection.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

LOOK_EVERY_S: Final = 3_600.0
LOOK_WHILE_SPARING_S: Final = 30.0
GROWTH: Final = 1.5
FULL_GENERATION: Final = 2
MIDDLE_GENERATION: Final = 1


class Collector:
    """Freezes survivors between `start` and `stop`.

    One per process, because the collector is global.
    """

    def __init__(self) -> None:
        self._frozen = 0
        self._looked_s = 0.0
        self._sparings = 0

    def start(self) -> None:
        """Start freezing; the existing objects are frozen without a collection."""
        gc.callbacks.append(_after)
        gc.freeze()

    def settle(self) -> None:
        """Collect once after a start, and set the base of `look`.

        Frozen objects are not visited: for ten thousand logs that would take 200 ms.
        """
        gc.collect()
        self._frozen = gc.get_freeze_count()

    def stop(self) -> None:
        """Stop freezing and return all objects to the collector."""
        gc.callbacks.remove(_after)
        gc.unfreeze()

    def look(self) -> bool:
        """Collect everything if the frozen objects have grown by half; return whether it did so."""
        if gc.get_freeze_count() < GROWTH * self._frozen:
            return False
        gc.unfreeze()
        self.settle()
        return True

    async def run(self) -> None:
        """Call `look` when it is due."""
        while True:
            await asyncio.sleep(LOOK_WHILE_SPARING_S)
            self.passed(LOOK_WHILE_SPARING_S)

    def passed(self, seconds: float) -> bool:
        """Look if objects were spared in this time, or after an hour; return whether it looked."""
        self._looked_s += seconds
        sparings, self._sparings = self._sparings, _Sparings.count
        if sparings == self._sparings and self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s = 0.0
        self.look()
        return True


class _Sparings:
    """The number of times that objects were spared in this process."""

    count = 0


def spare() -> None:
    """Freeze the living objects, in a process with a started `Collector`.

    Young garbage is collected before. Call it from time to time while many objects are made that
    live on without cycles.
    """
    if _after in gc.callbacks:
        gc.collect(MIDDLE_GENERATION)
        gc.freeze()
        _Sparings.count += 1


@contextmanager
def spared() -> Iterator[None]:
    """Make many objects that live on and die with their last reference, for some milliseconds.

    Collections wait until the end. In a process with a started `Collector` the objects are then
    frozen. Young garbage is collected before, so that it is not frozen with them.
    """
    collects, freezes = gc.isenabled(), _after in gc.callbacks
    if freezes:
        gc.collect(MIDDLE_GENERATION)
    gc.disable()
    try:
        yield
    finally:
        if freezes:
            gc.freeze()
            _Sparings.count += 1
        if collects:
            gc.enable()


def _after(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == FULL_GENERATION:
        gc.freeze()
