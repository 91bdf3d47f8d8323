"""Loop iterations until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool]) -> None:
    """Run loop iterations until `holds` returns True; the test's own timeout ends a
    hopeless wait."""
    while not holds():  # noqa: ASYNC110 - nothing to wait for announces itself
        await asyncio.sleep(0)
