"""Shell: Periodic passes over partitions, with a limit for passes at the same time.

The limit corresponds to one of Kafka's thread pools. A pass that has more to do is queued again
behind those that are due. A failed one is repeated after a growing backoff. A partition without a
running pass costs an entry in a heap.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from runtime.clock import Clock
from runtime.tasks import Supervisor

K = TypeVar("K", bound=Hashable)


class Pace(NamedTuple):
    """Settings of passes, all of which may change. `jitter` is a fraction of the backoff."""

    at_once: int
    interval_ms: float
    backoff_ms: float
    backoff_max_ms: float
    jitter: float


class _Entry:
    """State of a partition: its next pass, and the number of consecutive failures."""

    __slots__ = ("failures", "serial", "task")

    def __init__(self) -> None:
        self.failures = 0
        self.serial = 0
        """Serial number of its newest heap entry; older entries are ignored."""
        self.task: asyncio.Task[bool] | None = None


class Rounds(Generic[K]):
    """Passes of one kind.

    Args:
        one_pass: works on a key; returns whether there is more to do at once.
        failed: receives the exception of a failed pass, which is repeated later.
    """

    def __init__(
        self,
        name: str,
        one_pass: Callable[[K], Awaitable[bool]],
        *,
        pace: Callable[[], Pace],
        failed: Callable[[K, BaseException], None],
        supervisor: Supervisor,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._name = name
        self._one_pass = one_pass
        self._pace = pace
        self._failed = failed
        self._supervisor = supervisor
        self._clock = clock
        self._rng = rng
        self._entries: dict[K, _Entry] = {}
        self._due: list[tuple[float, int, K]] = []
        self._serial = 0
        self._running: dict[asyncio.Task[bool], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.busy_ms = 0.0
        """Duration of all passes together since the start, in milliseconds."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def running(self) -> int:
        return len(self._running)

    def add(self, key: K) -> None:
        """Start passes for a key: one now, and then one per interval."""
        if not self._closed and key not in self._entries:
            self._entries[key] = _Entry()
            self._put(key, 0.0)

    def remove(self, key: K) -> None:
        """Start no more passes for a key. A running pass must notice by itself that it should
        end."""
        self._entries.pop(key, None)

    def nudge(self, key: K) -> None:
        """Start the next pass now, because there may be something to do. Ignored after a failure:
        the backoff prevents continuous requests to a store that is down."""
        entry = self._entries.get(key)
        if entry is not None and entry.task is None and not entry.failures:
            self._put(key, 0.0)

    def reconfigured(self) -> None:
        """Apply a changed limit for passes."""
        self._arm()

    async def close(self) -> None:
        """Cancel the running passes and wait until they have ended."""
        self._closed = True
        self._entries.clear()
        self._arm()
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _put(self, key: K, delay_ms: float) -> None:
        self._serial += 1
        self._entries[key].serial = self._serial
        heapq.heappush(self._due, (self._clock.monotonic_ms() + delay_ms, self._serial, key))
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the next pass."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._due and not self._counts(*self._due[0]):
            heapq.heappop(self._due)
        if self._due and not self._closed and len(self._running) < self._pace().at_once:
            delay_ms = max(0.0, self._due[0][0] - self._clock.monotonic_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000.0, self._begin)

    def _counts(self, _due_ms: float, serial: int, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.serial == serial and entry.task is None

    def _begin(self) -> None:
        self._timer = None
        now_ms, limit = self._clock.monotonic_ms(), self._pace().at_once
        while self._due and len(self._running) < limit:
            due_ms, serial, key = self._due[0]
            if due_ms > now_ms:
                break
            heapq.heappop(self._due)
            if self._counts(due_ms, serial, key):
                self._run(key, self._entries[key], now_ms)
        self._arm()

    def _run(self, key: K, entry: _Entry, began_ms: float) -> None:
        task = self._supervisor.spawn(f"{self._name} {key}", self._work(key), fatal=False)
        entry.task = task
        self._running[task] = None
        task.add_done_callback(lambda done: self._ended(key, entry, began_ms, done))

    async def _work(self, key: K) -> bool:
        return await self._one_pass(key)

    def _ended(self, key: K, entry: _Entry, began_ms: float, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        self.busy_ms += self._clock.monotonic_ms() - began_ms
        entry.task = None
        delay_ms = 0.0
        if task.cancelled():
            entry.failures = 0
        elif (error := task.exception()) is not None:
            entry.failures += 1
            self._failed(key, error)
            delay_ms = self._backoff_ms(entry.failures)
        else:
            entry.failures = 0
            delay_ms = 0.0 if task.result() else self._pace().interval_ms
        if not self._closed and self._entries.get(key) is entry:
            self._put(key, delay_ms)
        else:
            self._arm()

    def _backoff_ms(self, failures: int) -> float:
        pace = self._pace()
        pause_ms = min(pace.backoff_ms * 2.0 ** min(failures - 1, 30), pace.backoff_max_ms)
        return pause_ms * self._rng.uniform(1.0 - pace.jitter, 1.0 + pace.jitter)
