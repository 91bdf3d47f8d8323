"""Shell: Time limits of a run's steps, with a description for the error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kraftbox.chaos.target import TargetError


@asynccontextmanager
async def within(limit_s: float, what: str | Callable[[], str]) -> AsyncIterator[None]:
    """Cancel the block after `limit_s`. `what` describes it; a function is called at the timeout.

    Raises TargetError at the limit. A TimeoutError of the block itself passes unchanged.
    """
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        step = what if isinstance(what, str) else what()
        raise TargetError(f"{step}: not finished after {limit_s:g} s") from None
