"""Backoffs between failing attempts: each about twice as long as the one before."""

from __future__ import annotations

import random
from typing import Final

PAUSE_MS: Final = 100.0
PAUSE_MAX_MS: Final = 2_000.0


class Pauses:
    """The backoffs of one piece of work."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next_ms = PAUSE_MS

    def next_s(self) -> float:
        """Return how long to wait now, in seconds."""
        pause_ms, self._next_ms = self._next_ms, min(self._next_ms * 2, PAUSE_MAX_MS)
        return pause_ms * self._rng.uniform(0.8, 1.2) / 1000.0

    def reset(self) -> None:
        """Start with the shortest backoff again, after a success."""
        self._next_ms = PAUSE_MS
