"""Shell: So many at once: a limit that may change while some go on and others wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Where Kafka has a pool of threads. First come, first served.

    Args:
        at_once: the limit, asked for whenever a turn begins or ends; at least 1.
    """

    def __init__(self, at_once: Callable[[], int]) -> None:
        self._at_once = at_once
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def reconfigured(self) -> None:
        """The limit may be another. Whoever has a turn keeps it."""
        while self._waiting and self._taken < self._at_once():
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

    async def __aenter__(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.reconfigured()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._end()  # it had its turn already
            raise

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._taken -= 1
        self.reconfigured()
