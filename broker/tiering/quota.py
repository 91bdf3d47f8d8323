"""Shell: Rate limits for writing and reading the tier (KIP-956).

Transfers wait while the measured rate is above the limit; one segment or read may exceed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker.tiering.settings import QuotaSettings
from runtime.clock import Clock
from runtime.rates import WindowedRate

WAIT_MAX_MS: Final = 1_000.0
"""Longest single wait: a raised limit takes effect after this time."""


class RateLimit:
    """A limit in bytes per second over the windows of the settings; only the rate may change."""

    def __init__(self, settings: Callable[[], QuotaSettings], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        begin = settings()
        self._rate = WindowedRate(begin.windows, begin.window_seconds * 1000.0)
        self.waited_ms = 0.0
        """Time that all callers together have waited since the start."""

    def record(self, size_bytes: int) -> None:
        """Count bytes that were transferred."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    def pause_ms(self) -> float:
        """Return how long to transfer nothing, in milliseconds; 0.0 while the rate is not above the
        limit."""
        return self._rate.excess_ms(self._settings().bytes_per_second, self._clock.monotonic_ms())

    async def wait(self) -> None:
        """Wait until the rate is not above the limit."""
        while (pause_ms := min(self.pause_ms(), WAIT_MAX_MS)) > 0.0:
            self.waited_ms += pause_ms
            await asyncio.sleep(pause_ms / 1000.0)
