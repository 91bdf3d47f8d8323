"""Lives of machines: code that was started in one stops running when it ends.

A life is one boot of one host. It is in a context variable, so every task, callback and timer that
the node's code creates belongs to its life. The loop can drop them all at once: a machine without
power runs no `finally`, closes no connection and sends no response. A life can be paused, too: time
passes, and callbacks that become due run at once when it is resumed.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any


class PowerCut(BaseException):
    """Raised through the running code at the instant its machine dies.

    Not an `Exception`: no error handling of the node may catch it.
    """


class Life:
    """One boot of `host`; `number` counts from 1."""

    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.alive = True
        self.parked: list[Any] | None = None
        """While the process is paused: callbacks that have become due, in order."""
        self.cost_s = 0.0
        """Virtual time that each callback takes while the process is slow."""
        self.waited = 0
        """Callbacks that had to wait for that."""
        self.watch: Callable[[Any], None] | None = None
        """Called with this life after each callback in it."""
        self._name = f"{host}#{number}"

    def __repr__(self) -> str:
        return self._name


CURRENT_LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar(
    "current_life", default=None
)


def life_of(context: contextvars.Context | None) -> Life | None:
    """Return the life of the code that runs in `context` (None: the current one)."""
    return CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)


def is_dead(context: contextvars.Context | None) -> bool:
    """Return whether the code that runs in `context` (None: the current one) is of a life that is
    over."""
    life = life_of(context)
    return life is not None and not life.alive
