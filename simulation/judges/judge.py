"""A judge: asked after events and at the end, it raises Violation for a broken promise.

A judge looks at states, disks and messages, and imports no code of the product that decides what it
judges.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife


class Judge:
    """Overrides what it needs; the message of a Violation begins with the promise's code."""

    due_s = 0.0
    """`after` is called where something of `judges.changes` was written to, and from this virtual
    time on after every callback: 0 always, infinity for changes alone."""
    counts: Mapping[str, int] = MappingProxyType({})
    """What it has seen, for the outcome of a run."""

    def hooked(self) -> AbstractContextManager[None]:
        """Entered for the run: hooks into what the nodes do."""
        return nullcontext()

    def began(self) -> None:
        """Every node is up for the first time, and nothing has been asked of them yet."""

    def after(self, life: NodeLife) -> None:
        """Something ran in this life; called thousands of times a second unless it is not due, so
        look for what has changed first."""

    def ending(self, life: NodeLife) -> None:
        """The life is about to end, maybe in the middle of a callback; its files are as they are.
        What it did before may have been seen by others, and `after` is not called for it."""

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """The life has ended; `lossy`: what was not flushed may be gone."""

    def unsettled(self) -> str | None:
        """What still goes on after the last event, while clients work; asked in the quiet phase
        until all judges say None. From then on no client may see an error."""
        return None

    def missing(self) -> str | None:
        """What a whole cluster has and this one has not yet; asked when clients have stopped until
        all judges say None. What is said last is the broken promise when the time is over."""
        return None

    def at_end(self) -> None:
        """Everything is quiet and whole."""


@dataclass(frozen=True)
class JudgeKind:
    """One judge of the registry: `make` is called once in each run, before the first boot."""

    text: str
    make: Callable[[JudgedWorld], Judge]
