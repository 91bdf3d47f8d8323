"""Clock for retention, based on a wall clock that may jump (reliability F23).

Retention compares wall time with the records' timestamps. A clock that was set forward by an hour,
or a year, would make all records of that span expire at once, and a deleted remote segment does not
come back. So a forward jump is accepted only after the clock has kept it for `hold_ms`; until then
time continues from before the jump. A backward jump is accepted at once: it makes nothing expire.
"""

from __future__ import annotations

from typing import Final

JUMP_MS: Final = 60_000
"""Accepted advance of the wall clock over the monotonic one between two calls: the wall clock is
slewed, and a machine may have slept."""
HOLD_MS: Final = 3_600_000


class SteadyTime:
    """The time for retention. The first call accepts the wall clock: there is no other
    reference."""

    __slots__ = ("_ahead_ms", "_hold_ms", "_jump_ms", "_jumped_at_ms", "_jumped_to_ms")

    def __init__(self, *, jump_ms: int = JUMP_MS, hold_ms: int = HOLD_MS) -> None:
        self._jump_ms = jump_ms
        self._hold_ms = hold_ms
        # Accepted difference of wall and monotonic time; a higher claimed one, and since when.
        self._ahead_ms: float | None = None
        self._jumped_to_ms = 0.0
        self._jumped_at_ms: float | None = None

    def now_ms(self, wall_ms: int, monotonic_ms: float) -> int:
        """Return the time for retention, in epoch ms, given the present readings of both clocks."""
        ahead_ms = wall_ms - monotonic_ms
        if self._ahead_ms is None or ahead_ms <= self._ahead_ms + self._jump_ms:
            self._ahead_ms = ahead_ms
            self._jumped_at_ms = None
        elif self._jumped_at_ms is None or abs(ahead_ms - self._jumped_to_ms) > self._jump_ms:
            self._jumped_at_ms, self._jumped_to_ms = monotonic_ms, ahead_ms
        elif monotonic_ms - self._jumped_at_ms >= self._hold_ms:
            self._ahead_ms, self._jumped_at_ms = ahead_ms, None
        return int(self._ahead_ms + monotonic_ms)

    @property
    def doubtful(self) -> bool:
        """True while the wall clock is ahead by a jump that is not accepted yet."""
        return self._jumped_at_ms is not None
