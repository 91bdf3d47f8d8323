"""Shell: Clocks, passed as arguments.

There are two clocks with different guarantees. `now_ms` is the wall clock (epoch milliseconds, an
int, may jump); use it only in records and responses. `monotonic_ms` (a float, never decreases) is
for timeouts. Code that must be replayable from a seed takes a `Clock` and never reads `time`
itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary start; the value never decreases."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class LoopClock:
    """Both clocks, driven by an event loop's own time, for simulation.

    `epoch_ms` is the wall time at loop time zero. `jump` moves only the wall clock, as an operator
    or NTP would.
    """

    __slots__ = ("_epoch_ms", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch_ms: int) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        return self._epoch_ms + int(self._loop.time() * 1000.0)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000.0

    def jump(self, by_ms: int) -> None:
        self._epoch_ms += by_ms


class ManualClock:
    """A clock that advances only when a test moves it."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: float = 0.0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Move both clocks forward by milliseconds."""
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Move only the wall clock, forward or back."""
        self._now_ms += by_ms
