"""Turns of the event loop, given until something is so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool]) -> None:
    """Give the loop turns until it holds; the test's own limit ends a hopeless wait."""
    while not holds():  # noqa: ASYNC110 - nothing to wait for announces itself
        await asyncio.sleep(0)
