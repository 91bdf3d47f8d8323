"""How late the event loop runs what is due: the one number that shows a stall.

A timer is set every `every_ms`; how much later than due it ran is the lag. Kept are the last value
and the worst since the last scrape, which is what an alert wants to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from runtime.metrics import Family

EVERY_MS = 500.0


class LoopLag:
    """Measures the running loop between `start` and `stop`."""

    def __init__(self, every_ms: float = EVERY_MS) -> None:
        self.last_ms = 0.0
        self.worst_ms = 0.0
        self._every_ms = every_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every_ms / 1000.0
        self._timer = loop.call_at(due, self._tick, due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def collect(self) -> Iterable[Family]:
        """For the metrics registry; forgets the worst value."""
        worst_ms, self.worst_ms = max(self.worst_ms, self.last_ms), 0.0
        return [
            Family(
                "kraftbox_loop_lag_seconds",
                "How late the event loop ran a timer, the last one.",
                "gauge",
                [({}, self.last_ms / 1000.0)],
            ),
            Family(
                "kraftbox_loop_lag_worst_seconds",
                "How late the event loop ran a timer, the worst since the last scrape.",
                "gauge",
                [({}, worst_ms / 1000.0)],
            ),
        ]

    def _tick(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        self.last_ms = max(0.0, (now - due) * 1000.0)
        self.worst_ms = max(self.worst_ms, self.last_ms)
        self.start()
