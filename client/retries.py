"""Shell: the one rule of when the client tries again, and for how long.

A request is tried again after a retriable error code and after a connection that was lost or
refused, with a pause, until the caller's time is over; then its last error is raised. A refusal
that names a newer leader (KIP-951) is followed without a pause: each such leader has a higher epoch
than the one before, so that this has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from client.errors import LeaderMoved
from protocol.errors import ApiError

T = TypeVar("T")

RETRY_WAIT_MS = 50.0


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, OSError)


async def retrying(
    timeout_ms: float,
    attempt: Callable[[float], Awaitable[T]],
    again: Callable[[Exception], bool] = may_pass,
) -> T:
    """The result of `attempt`, which is told how many milliseconds are left.

    Raises its last error: one that is not to be tried `again`, or any when `timeout_ms` are over.
    """
    loop = asyncio.get_running_loop()
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
            if not again(error) or loop.time() + RETRY_WAIT_MS / 1000.0 >= deadline_s:
                raise
        await asyncio.sleep(RETRY_WAIT_MS / 1000.0)
