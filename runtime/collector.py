"""Shell: The cyclic garbage collector of a process with many long-lived objects.

A full collection visits every object that may be part of a cycle, and blocks the event loop. With
thousands of logs that takes a tenth of a second, each time the number of objects has grown by a
quarter. So the survivors of a collection are frozen. The next one visits only objects created
since, about seventy thousand, however many logs and images there are.

A frozen object is still freed when its last reference goes, as with all parts of logs, partitions,
images and connections. A frozen cycle that becomes garbage stays in memory. So when the number of
frozen objects has grown by half, everything is collected once more. This bounds leaks, and a
process that does not grow never pays for it.

A large request has up to a million elements. A full collection in the meantime would visit all of
them, which takes a tenth of a second, so full collections are rare while one is served
(`postpone_full`). The younger generations are collected as usual, and free nearly all cycles.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final

LOOK_EVERY_S: Final = 3_600.0
GROWTH: Final = 1.5
MIDDLE_GENERATION: Final = 1
FULL_GENERATION: Final = 2
POSTPONED_TIMES: Final = 200
"""A postponed full collection comes after this many times as many collections of the middle
generation. So a request that is served for hours does not keep garbage forever."""


class Collector:
    """Freezes survivors between `start` and `stop`.

    One per process, because the collector is global.
    """

    def __init__(self) -> None:
        self._frozen = 0

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
        _Postponed.end()

    def look(self) -> bool:
        """Collect everything if the frozen objects have grown by half; return whether it did so."""
        if gc.get_freeze_count() < GROWTH * self._frozen:
            return False
        gc.unfreeze()
        self.settle()
        return True

    async def run(self) -> None:
        """Call `look` every LOOK_EVERY_S seconds."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()


class _Postponed:
    """Postponed full collections. The state is global, as the process has one collector."""

    thresholds: tuple[int, int, int] | None = None
    """The thresholds to return to; None if full collections are as frequent as usual."""
    reasons = 0

    @classmethod
    def end(cls) -> None:
        """Return to the usual thresholds."""
        cls.reasons = 0
        if cls.thresholds is not None:
            gc.set_threshold(*cls.thresholds)
            cls.thresholds = None


def postpone_full() -> None:
    """Make full collections rare, until `resume_full` was called as often as this function.

    Without a started `Collector` this has no effect.
    """
    if _after not in gc.callbacks:
        return
    _Postponed.reasons += 1
    if _Postponed.thresholds is None:
        _Postponed.thresholds = young, middle, full = gc.get_threshold()
        gc.set_threshold(young, middle, full * POSTPONED_TIMES)


def resume_full() -> None:
    """Return to the usual frequency of full collections, unless another request is served."""
    _Postponed.reasons -= 1
    if _Postponed.reasons <= 0:
        _Postponed.end()


def collect_young() -> None:
    """Visit the objects created since the last collection, and let only full ones visit them again.

    Call it after a step that has created thousands of objects that live on.
    """
    gc.collect(MIDDLE_GENERATION)


def _after(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == FULL_GENERATION:
        gc.freeze()
