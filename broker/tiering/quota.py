"""Shell: Limits of the rate at which the tier is written and read (KIP-956).

What is to be moved waits while the rate of what was moved is above the limit; one segment or read
may overdraw it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker.tiering.settings import QuotaSettings
from runtime.clock import Clock
from runtime.rates import WindowedRate

WAIT_MAX_MS: Final = 1_000.0
"""A limit that is raised meanwhile is noticed after so long."""


class RateLimit:
    """Bytes per second over the windows of the settings, which may change their rate."""

    def __init__(self, settings: Callable[[], QuotaSettings], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        begin = settings()
        self._rate = WindowedRate(begin.windows, begin.window_seconds * 1000.0)
        self.waited_ms = 0.0
        """By all together, since the start."""

    def record(self, size_bytes: int) -> None:
        """So much was moved."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    def pause_ms(self) -> float:
        """How long nothing should be moved; 0.0 while the rate is not above the limit."""
        return self._rate.excess_ms(self._settings().bytes_per_second, self._clock.monotonic_ms())

    async def wait(self) -> None:
        """Until something may be moved."""
        while (pause_ms := min(self.pause_ms(), WAIT_MAX_MS)) > 0.0:
            self.waited_ms += pause_ms
            await asyncio.sleep(pause_ms / 1000.0)
