"""Shell: Workers for the steps of a cleaning round.

On real files, the steps run in a helper process: walking ten million records takes twenty seconds
of CPU, which a thread would take from the event loop. On files that only this process sees (memory,
a disk with injected faults) they run on the event loop, a few milliseconds at a time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final, NamedTuple, Protocol

from runtime.clock import Clock
from runtime.helper import HelperProcess, HelperStopped
from storage.files import Files, RealFiles
from storage.log.cleaning.job import Cleaned, CleaningJob, Finished, Step, Worked, steps
from storage.log.cleaning.throttle import Throttle
from storage.log.errors import CorruptLog

SLICE_MS: Final = 5.0
FD_BUDGET: Final = 64
STEPS_PER_SLICE_MAX: Final = 8
"""Limit for a virtual clock, which stands still while code runs."""


class Failed(NamedTuple):
    """A failed round."""

    reason: str
    unreadable: bool
    """True if the log itself is damaged: another attempt would fail, too."""


class Stopped(Exception):
    """`stop` was called during the round."""


Result = Cleaned | Finished | Failed


class Worker(Protocol):
    """Runs one round at a time."""

    def run(self, job: CleaningJob, bytes_per_second: float) -> AsyncGenerator[Result, None]:
        """Yield the results of the round, group by group. Raises Stopped, OSError, HelperFailed."""
        ...

    def stop(self) -> None:
        """Abort the running round. After the return, no further file of its log is opened."""
        ...

    async def close(self) -> None: ...


class LoopWorker:
    """Runs the steps on the event loop, in slices."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._stopped = False

    async def run(self, job: CleaningJob, bytes_per_second: float) -> AsyncGenerator[Result, None]:
        self._stopped = False
        throttle = Throttle(bytes_per_second)
        slice_ends_ms, left = self._clock.monotonic_ms() + SLICE_MS, STEPS_PER_SLICE_MAX
        for step in _guarded(steps(self._files, job)):
            rest_ms = 0.0
            if isinstance(step, Worked):
                rest_ms = throttle.rest_ms(step.size_bytes, self._clock.monotonic_ms())
            else:
                yield step
            left -= 1
            if rest_ms > 0 or left <= 0 or self._clock.monotonic_ms() >= slice_ends_ms:
                await asyncio.sleep(rest_ms / 1000.0)
                slice_ends_ms, left = self._clock.monotonic_ms() + SLICE_MS, STEPS_PER_SLICE_MAX
            if self._stopped:
                raise Stopped

    def stop(self) -> None:
        self._stopped = True

    async def close(self) -> None:
        return


class ProcessWorker:
    """Runs the steps in a helper process, which is started on demand."""

    def __init__(self) -> None:
        self.helper = HelperProcess()

    async def run(self, job: CleaningJob, bytes_per_second: float) -> AsyncGenerator[Result, None]:
        try:
            async with aclosing(self.helper.run(clean, (job, bytes_per_second))) as results:
                async for result in results:
                    yield result
        except HelperStopped:
            raise Stopped from None

    def stop(self) -> None:
        self.helper.stop()

    async def close(self) -> None:
        await self.helper.close()


def clean(task: tuple[CleaningJob, float]) -> Iterator[Result]:
    """Run a round in the helper process."""
    job, bytes_per_second = task
    throttle = Throttle(bytes_per_second)
    files = RealFiles(FD_BUDGET)
    # A round creates millions of tuples but no cycles: the cyclic GC would cost a tenth of the
    # time.
    gc.disable()
    try:
        for step in _guarded(steps(files, job)):
            if isinstance(step, Worked):
                rest_ms = throttle.rest_ms(step.size_bytes, time.monotonic() * 1000.0)
                if rest_ms > 0:
                    time.sleep(rest_ms / 1000.0)
            else:
                yield step
    finally:
        gc.enable()
        files.close()


def _guarded(taken: Iterator[Step]) -> Iterator[Step | Failed]:
    """Yield the steps, and an error as last step, so that it can be sent to another process."""
    try:
        yield from taken
    except CorruptLog as error:
        yield Failed(str(error), unreadable=True)
    except OSError as error:
        yield Failed(str(error), unreadable=False)


def worker_for(files: Files, clock: Clock) -> Worker:
    """Return a helper process for shared files, otherwise a worker on the event loop."""
    return ProcessWorker() if files.shared else LoopWorker(files, clock)
