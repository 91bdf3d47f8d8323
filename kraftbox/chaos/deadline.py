"""Shell: Time limits of a run's steps, each saying what it was for when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kraftbox.chaos.target import TargetError


@asynccontextmanager
async def within(limit_s: float, what: str | Callable[[], str]) -> AsyncIterator[None]:
    """Cancel the block after that time. `what` it does, asked for when it is over.

    Raises TargetError then; a TimeoutError of the block's own stays what it is.
    """
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        told = what if isinstance(what, str) else what()
        raise TargetError(f"{told}: not over after {limit_s:g} s") from None
