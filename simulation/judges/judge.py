"""The interface of a judge: called after events and at the end, it raises Violation for a broken
promise.

A judge looks at states, disks and messages, and imports no code of the product that decides the
behaviour that it judges.
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
    """Base class with empty hooks; the message of a Violation begins with the promise's code."""

    due_s = 0.0
    """`after` is called when an object of `judges.changes` was written to, and from this virtual
    time on after every callback: 0 for always, infinity for changes alone."""
    counts: Mapping[str, int] = MappingProxyType({})
    """Counts for the outcome of a run."""

    def hooked(self) -> AbstractContextManager[None]:
        """Return a context for the run that hooks into the nodes' code."""
        return nullcontext()

    def began(self) -> None:
        """Called when every node is up for the first time, before the first client request."""

    def after(self, life: NodeLife) -> None:
        """Called after code ran in this life, thousands of times a second unless the judge is not
        due. An implementation should first check for changes."""

    def ending(self, life: NodeLife) -> None:
        """Called before a life ends, perhaps inside a callback; its files are as they are. Other
        nodes may have seen its last effects, and `after` is not called for it again."""

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """Called when a life has ended; `lossy`: unflushed data may be lost."""

    def unsettled(self) -> str | None:
        """Return what has not settled after the last event, while clients work, else None.

        Called in the quiet phase until all judges return None. From then on no client may get an
        error.
        """
        return None

    def missing(self) -> str | None:
        """Return what the cluster still lacks to be whole, else None.

        Called when clients have stopped, until all judges return None. The last text is the broken
        promise when the time is over.
        """
        return None

    def at_end(self) -> None:
        """Called when everything is quiet and whole."""


@dataclass(frozen=True)
class JudgeKind:
    """One judge of the registry: `make` is called once in each run, before the first boot."""

    text: str
    make: Callable[[JudgedWorld], Judge]
