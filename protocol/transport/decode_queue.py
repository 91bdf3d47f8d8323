"""Shell: Decoding in slices: all large requests of a listener share one slice per iteration.

Requests are decoded round-robin, so that the largest frame delays no other for longer than a slice
at a time. A connection has at most one large request, because it is not read in the meantime.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from protocol.decoding import Allowance, Decoding, free_in_steps
from protocol.errors import ProtocolError
from protocol.schema import Buffer, Message
from runtime.collector import collect_young, postpone_full, resume_full

M = TypeVar("M", bound=Message)

SLICE_MS: Final = 2.5
"""Half of `runtime.slices.SLICE_MS`: short frames are decoded in the same iteration."""
FREE_MS: Final = 1.0
DONE: Final = object()
STEPS_TOGETHER: Final = 10
STEPS_MAX: Final = 50
"""Ends a slice if the clock does not advance: a simulation's clock stops while code runs."""


def decode_slice(
    decoding: Decoding[Any], now_ms: Callable[[], float], slice_ms: float = SLICE_MS
) -> bool:
    """Decode for `slice_ms`.

    The garbage collector waits: all new objects live on. It visits them once, at the end of the
    slice; without that its middle generation would visit those of ten slices at once.
    """
    ends_ms = now_ms() + slice_ms
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(STEPS_MAX):
            if decoding.step():
                return True
            if now_ms() >= ends_ms:
                break
        return False
    finally:
        if collects:
            collect_young()
            gc.enable()


async def decode_in_slices(
    cls: type[M], buf: Buffer, version: int, offset: int = 0
) -> tuple[M, int]:
    """Decode a message of any size like `codec.decode`, and yield to other tasks in between.

    Returns:
        The message and the offset of its end.

    Raises:
        ProtocolError: the bytes are not such a message, or it takes too much memory.
    """
    decoding = Decoding(cls, memoryview(buf), version, offset, Allowance())
    try:
        steps = 0
        while not decoding.step():
            steps += 1
            if steps % STEPS_TOGETHER == 0:
                await asyncio.sleep(0)
    finally:
        decoding.stop()
    return decoding.message, decoding.end


class Job(Protocol):
    """A request that is being decoded."""

    decoding: Decoding[Any]

    def decoded(self, error: ProtocolError | None) -> None:
        """Receive the result, once: the message is complete, or `error` explains why not."""


class DecodeQueue:
    """The large requests of one listener.

    Full collections are postponed from `add` until the decoded objects are freed.
    """

    __slots__ = ("_alive", "_call_soon", "_jobs", "_now_ms", "_running", "_waste")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now_ms: Callable[[], float]
    ) -> None:
        """`call_soon` calls a function in the next iteration of the event loop."""
        self._call_soon = call_soon
        self._now_ms = now_ms
        self._jobs: deque[Job] = deque()
        self._running = False
        self._waste: deque[tuple[Decoding[Any], Iterator[None]]] = deque()
        # The requests whose objects are not freed yet.
        self._alive: set[Decoding[Any]] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Decode a request in later iterations."""
        self._jobs.append(job)
        if job.decoding not in self._alive:
            self._alive.add(job.decoding)
            postpone_full()
        self._go_on()

    def remove(self, job: Job) -> None:
        """Stop decoding a request whose connection has ended; the caller then frees it."""
        self._jobs.remove(job)

    def free(self, decoding: Decoding[Any]) -> None:
        """Free the decoded objects in later iterations."""
        decoding.stop()
        if (message := decoding.take_made()) is None:
            self._freed(decoding)
        else:
            self._waste.append((decoding, free_in_steps(message)))
            del message
            self._go_on()

    def _freed(self, decoding: Decoding[Any]) -> None:
        if decoding in self._alive:
            self._alive.remove(decoding)
            resume_full()

    def _go_on(self) -> None:
        if (self._jobs or self._waste) and not self._running:
            self._running = True
            self._call_soon(self._run)

    def _free_some(self) -> None:
        ends_ms = self._now_ms() + FREE_MS
        for _ in range(STEPS_MAX):
            if not self._waste:
                return
            decoding, steps = self._waste[0]
            if next(steps, DONE) is DONE:
                self._waste.popleft()
                self._freed(decoding)
            if self._now_ms() >= ends_ms:
                return

    def _run(self) -> None:
        self._running = False
        self._free_some()
        if not self._jobs:
            self._go_on()
            return
        job = self._jobs.popleft()
        try:
            if not decode_slice(job.decoding, self._now_ms):
                self._jobs.append(job)
                return
            error = None
        except ProtocolError as refused:
            error = refused
        finally:
            self._go_on()
        job.decoded(error)
