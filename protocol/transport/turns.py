"""The share of a turn of the loop that the connections of a listener have.

A turn brings all that has arrived on all connections. A thousand clients that ask, or hang up, at
the same moment would have the loop for a tenth of a second, in which no timer fires, no reply that
waited goes out and nobody else is heard. So a turn has a time: whoever comes after it waits for the
next turn, first come, first served. And it has a number of bytes to answer with: the loop writes to
the sockets at the end of the turn, when nobody can stop it any more.

Each request is served whole, so a turn may take longer by one. Few connections cannot bring that
much and are spared the counting, which costs each turn a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

TURN_MS: Final = 3.0
"""Long beside what a turn costs by itself, short beside what a client notices. Replies that waited
have as much again, in the same turn, to be made (`waiting_requests`)."""
TURN_BYTES: Final = 2 << 20
"""What a kernel takes over in about that time at worst, when other programs have the caches."""
CROWD: Final = 50
"""More connections than this can make a turn too long."""


class Turns:
    """The turns of one listener."""

    __slots__ = ("_call_soon", "_ends_ms", "_now_ms", "_sent_bytes", "_waiting")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now_ms: Callable[[], float]
    ) -> None:
        """`call_soon` calls a function in the next turn; `now_ms` is monotonic."""
        self._call_soon = call_soon
        self._now_ms = now_ms
        self._ends_ms = -1.0  # no turn has begun
        self._sent_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def is_over(self, now_ms: float) -> bool:
        """Whether who wants to be served now must `wait`. Else the turn begins, or goes on."""
        if self._ends_ms >= 0.0:
            return now_ms >= self._ends_ms or self._sent_bytes >= TURN_BYTES
        self._begin(now_ms)
        return False

    def sent(self, size_bytes: int) -> None:
        """So much is to be written at the end of this turn."""
        if self._ends_ms < 0.0:
            self._begin(self._now_ms())
        self._sent_bytes += size_bytes

    def begin(self) -> None:
        """Begin a turn if none has begun: who waits is served in the next one."""
        if self._ends_ms < 0.0:
            self._begin(self._now_ms())

    def wait(self, serve: Callable[[], None]) -> None:
        """Calls `serve` in a turn to come."""
        self._waiting.append(serve)

    def _begin(self, now_ms: float) -> None:
        self._ends_ms = now_ms + TURN_MS
        self._sent_bytes = 0
        self._call_soon(self._next)

    def _next(self) -> None:
        """Another turn: first those who wait. If it is over then, newcomers wait behind them."""
        self._ends_ms = -1.0
        waiting = self._waiting
        if not waiting:
            return
        now_ms = self._now_ms()
        self._begin(now_ms)
        while waiting and not self.is_over(now_ms):
            waiting.popleft()()
            now_ms = self._now_ms()
