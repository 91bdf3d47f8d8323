"""Polling of processes, for conditions without a notification."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_S = 60.0
"""Seconds after which a condition counts as failed, on a busy machine too."""

T = TypeVar("T")


def until(
    what: str, look: Callable[[], T | None], wait_s: float = WAIT_S, *, every_s: float = 0.02
) -> T:
    """Return the first true value of `look`. Raises: AssertionError after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not reached within {wait_s:g} s"
        time.sleep(every_s)
