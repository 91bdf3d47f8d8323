"""Holds of the event loop, measured in work instead of time.

Work itself moves a `ToilClock`: every operation on `ToilingFiles`, or other work that a test
counts, costs some milliseconds on it. The time on it between two loop iterations is a hold; it is
the same on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from runtime.clock import ManualClock
from storage.files import MemoryFiles
from storage.files.memory import MemoryFile

T = TypeVar("T")

OPERATION_MS = 0.05


class ToilClock(ManualClock):
    """A clock that only work moves."""

    def toil(self, ms: float = OPERATION_MS) -> None:
        self._monotonic_ms += ms


class ToilingFiles(MemoryFiles):
    """Files whose operations take time on the clock; work in a worker thread takes none of the
    loop's."""

    def __init__(self, clock: ToilClock) -> None:
        super().__init__()
        self.clock = clock
        self.working = False

    def _toil(self) -> None:
        if not self.working:
            self.clock.toil()

    def open(self, path: str, create: bool = False) -> MemoryFile:
        self._toil()
        return super().open(path, create)

    def rename(self, source: str, target: str) -> None:
        self._toil()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._toil()
        super().unlink(path)

    def mkdirs(self, path: str) -> None:
        self._toil()
        super().mkdirs(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self._toil()
        super().write_atomic(path, data)

    def fsync_dir(self, path: str) -> None:
        if not self.working:
            self.clock.toil(20.0)
        super().fsync_dir(path)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        self.working = True
        try:
            return function(*args)
        finally:
            self.working = False


class Holds:
    """`longest_ms` is the longest time between two loop iterations so far."""

    def __init__(self) -> None:
        self.longest_ms = 0.0


@asynccontextmanager
async def loop_holds(clock: ManualClock) -> AsyncIterator[Holds]:
    """Measure the loop's holds while the body runs."""
    holds = Holds()

    async def watch() -> None:
        before_ms = clock.monotonic_ms()
        while True:
            await asyncio.sleep(0)
            now_ms = clock.monotonic_ms()
            holds.longest_ms = max(holds.longest_ms, now_ms - before_ms)
            before_ms = now_ms

    watcher = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    try:
        yield holds
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        watcher.cancel()
