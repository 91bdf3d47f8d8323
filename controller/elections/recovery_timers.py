"""Times of unclean recovery: a timeout per partition and strategy, and a grace for late answers.

A timeout runs while its strategy waits for answers. It can end once and stays overdue until it is
stopped, unless the configured timeout changes. All timeouts have the same length, so the one that
was started first ends first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.recovery_questions import PartitionKey

TOGETHER_MS: Final = 500.0
"""How long partitions that could be decided wait for answers about others while these arrive. New
leaders and followers have much work, so a broker answers many times slower once they start."""


class Timers:
    """Timeouts by partition and strategy."""

    __slots__ = ("_pending", "_started", "_timeout_ms")

    def __init__(self) -> None:
        self._timeout_ms = 0.0
        self._started: dict[PartitionKey, dict[RecoveryStrategy, float]] = {}
        # Starts of the timeouts that have not ended, in order.
        self._pending: dict[tuple[PartitionKey, RecoveryStrategy], float] = {}

    def clear(self) -> None:
        """Stop the timeouts of all partitions."""
        self._started.clear()
        self._pending.clear()

    def set_timeout(self, timeout_ms: float) -> None:
        """Set the length of all timeouts. Those that have ended end again if it has changed."""
        if timeout_ms == self._timeout_ms:
            return
        self._timeout_ms = timeout_ms
        running = [
            ((key, strategy), began_ms)
            for key, started in self._started.items()
            for strategy, began_ms in started.items()
        ]
        self._pending = dict(sorted(running, key=lambda timer: timer[1]))

    def keep(
        self, key: PartitionKey, strategies: Collection[RecoveryStrategy], now_ms: float
    ) -> None:
        """Run the timeouts of exactly these strategies; those that run already go on."""
        started = self._started.get(key)
        if started is None:
            if not strategies:
                return
            started = self._started[key] = {}
        for strategy in list(started):
            if strategy not in strategies:
                del started[strategy]
                self._pending.pop((key, strategy), None)
        for strategy in strategies:
            if strategy not in started:
                started[strategy] = self._pending[key, strategy] = now_ms
        if not started:
            del self._started[key]

    def stop(self, key: PartitionKey) -> bool:
        """Stop the timeouts of a partition. Returns: True if one was running."""
        started = self._started.pop(key, None)
        for strategy in started or ():
            self._pending.pop((key, strategy), None)
        return started is not None

    def is_running(self, key: PartitionKey) -> bool:
        """Return whether a timeout of the partition runs or is overdue."""
        return key in self._started

    def is_overdue(self, key: PartitionKey, strategy: RecoveryStrategy, now_ms: float) -> bool:
        """Return whether the timeout of a strategy has ended."""
        started = self._started.get(key)
        began_ms = None if started is None else started.get(strategy)
        return began_ms is not None and now_ms >= began_ms + self._timeout_ms

    def is_any_overdue(self, key: PartitionKey, now_ms: float) -> bool:
        """Return whether the timeout of any strategy of the partition has ended."""
        started = self._started.get(key)
        return started is not None and min(started.values()) <= now_ms - self._timeout_ms

    def take_ended(self, now_ms: float) -> list[PartitionKey]:
        """Return the partitions with a timeout that has ended, each timeout once."""
        ended: list[PartitionKey] = []
        while self._pending:
            timer, began_ms = next(iter(self._pending.items()))
            if began_ms + self._timeout_ms > now_ms:
                break
            del self._pending[timer]
            ended.append(timer[0])
        return ended

    def due_ms(self) -> float | None:
        """Return the monotonic time at which the next timeout ends; None if none is pending."""
        first = next(iter(self._pending.values()), None)
        return None if first is None else first + self._timeout_ms


class Grace:
    """Partitions with all answers, which wait a moment for answers about others."""

    __slots__ = ("_partitions", "_until_ms")

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, None] = {}
        self._until_ms = 0.0

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._partitions

    def clear(self) -> None:
        """Remove all partitions from the wait."""
        self._partitions.clear()

    def add(self, key: PartitionKey, now_ms: float) -> None:
        """Let a partition wait; the first one determines the end for all."""
        if not self._partitions:
            self._until_ms = now_ms + TOGETHER_MS
        self._partitions[key] = None

    def take(self, now_ms: float, *, others_come: bool) -> list[PartitionKey]:
        """Return the partitions if their wait has ended, or no answers about others come."""
        if others_come and now_ms < self._until_ms:
            return []
        partitions = list(self._partitions)
        self._partitions.clear()
        return partitions

    def due_ms(self, now_ms: float, *, others_come: bool) -> float | None:
        """Return the time at which `take` returns the partitions; None without a partition."""
        if not self._partitions:
            return None
        return self._until_ms if others_come else now_ms
