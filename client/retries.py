"""Shell: The client's rule of retries.

A request is retried after a retriable error code, and after a connection that was lost or refused.
The client waits between attempts; at the caller's timeout it raises the last error. An error that
names a newer leader (KIP-951) is retried there without a wait. Each such leader has a higher epoch
than the one before, so this ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from client.errors import ClientClosed, LeaderMoved
from protocol.errors import ApiError

T = TypeVar("T")

RETRY_WAIT_MS = 50.0


def may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, OSError) and not isinstance(error, ClientClosed)


class Deadline:
    """The end of a call's time, for a call of several steps."""

    __slots__ = ("_ends_s", "_loop")

    def __init__(self, timeout_ms: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends_s = self._loop.time() + timeout_ms / 1000.0

    @property
    def left_ms(self) -> float:
        """The time left for the next step, at least 1 ms."""
        return max((self._ends_s - self._loop.time()) * 1000.0, 1.0)


async def retrying(
    timeout_ms: float,
    attempt: Callable[[float], Awaitable[T]],
    again: Callable[[Exception], bool] = may_pass,
) -> T:
    """Return the result of `attempt`, which gets the remaining milliseconds.

    Raises the last error: one for which `again` is false, or any error at the timeout. If only the
    end of the time broke the last attempt off, the last refusal of a broker is raised instead.
    """
    loop = asyncio.get_running_loop()
    refusal: ApiError | None = None
    deadline_s = loop.time() + timeout_ms / 1000.0
    while True:
        left_ms = (deadline_s - loop.time()) * 1000.0
        try:
            return await attempt(max(left_ms, 1.0))
        except LeaderMoved:
            if loop.time() >= deadline_s:
                raise
            continue
        except (ApiError, OSError) as error:
            if not again(error):
                raise
            if isinstance(error, ApiError):
                refusal = error
            elif refusal is not None and loop.time() >= deadline_s:
                raise refusal from error
            if loop.time() + RETRY_WAIT_MS / 1000.0 >= deadline_s:
                raise
        await asyncio.sleep(RETRY_WAIT_MS / 1000.0)
