"""Time for retention, by a wall clock that may jump (reliability F23).

Retention compares wall time with the records' own. A clock that was set forward by an hour, or a
year, would have all of that expire at once, and a remote segment that is gone does not come back.
So a jump forward is believed only when the clock has kept to it for `hold_ms`; until then time goes
on from where it was. A jump back is believed at once: it makes nothing expire.
"""

from __future__ import annotations

from typing import Final

JUMP_MS: Final = 60_000
"""The wall clock may run ahead of the monotonic one by so much between two looks: it is slewed, and
a machine may have slept."""
HOLD_MS: Final = 3_600_000


class SteadyTime:
    """The time that retention goes by. The first look believes the clock: there is nothing else."""

    __slots__ = ("_ahead_ms", "_hold_ms", "_jump_ms", "_jumped_at_ms", "_jumped_to_ms")

    def __init__(self, *, jump_ms: int = JUMP_MS, hold_ms: int = HOLD_MS) -> None:
        self._jump_ms = jump_ms
        self._hold_ms = hold_ms
        # Wall time less monotonic time, as believed; and a greater one, since when it is claimed.
        self._ahead_ms: float | None = None
        self._jumped_to_ms = 0.0
        self._jumped_at_ms: float | None = None

    def now_ms(self, wall_ms: int, monotonic_ms: float) -> int:
        """The time to go by, given what both clocks say now."""
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
        """Whether the wall clock claims a time that is not believed yet."""
        return self._jumped_at_ms is not None
