"""Shell: Semaphore whose limit may change while some callers hold it and others wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """A semaphore, in place of one of Kafka's thread pools. First come, first served.

    Args:
        at_once: returns the limit, at least 1; called whenever a turn begins or ends.
    """

    def __init__(self, at_once: Callable[[], int]) -> None:
        self._at_once = at_once
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def reconfigured(self) -> None:
        """Apply a changed limit. Callers that have a turn keep it."""
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
                self._end()  # the turn was already granted
            raise

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._taken -= 1
        self.reconfigured()
