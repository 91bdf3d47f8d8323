"""Lives of machines: what was started in one runs no further when it ends.

A life is one boot of one host. It travels in a context variable, so every task, callback and timer
that the node's code makes belongs to the life it was made in, and the loop can drop them all at
once: a machine without power runs no `finally`, sends no goodbye and answers nobody. A life can be
paused, too: time passes, and what would have run meanwhile runs when it goes on, all at once.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any


class PowerCut(BaseException):
    """Thrown through whatever runs at the instant its machine dies.

    Not an `Exception`: no error handling of the node may take it for an error of the world.
    """


class Life:
    """One boot of `host`; `number` counts from 1."""

    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.alive = True
        self.parked: list[Any] | None = None
        """While the process is paused: what would have run meanwhile, in order."""
        self.cost_s = 0.0
        """Virtual time that each callback takes while the process is slow."""
        self.waited = 0
        """Callbacks that had to wait for that."""
        self.watch: Callable[[Any], None] | None = None
        """Called with this life whenever something has run in it."""
        self._name = f"{host}#{number}"

    def __repr__(self) -> str:
        return self._name


CURRENT_LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar(
    "current_life", default=None
)


def life_of(context: contextvars.Context | None) -> Life | None:
    """The life that what runs in `context` (None: the current one) belongs to."""
    return CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)


def is_dead(context: contextvars.Context | None) -> bool:
    """Whether what runs in `context` (None: the current one) belongs to a life that is over."""
    life = life_of(context)
    return life is not None and not life.alive
