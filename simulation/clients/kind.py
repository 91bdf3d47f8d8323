"""A kind of client: drawn before a run, created when the run begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from simulation.clients.load import Load, Step
    from simulation.shapes.shape import ClientShape, TopicShape


@dataclass(frozen=True)
class ClientKind:
    """One kind of client.

    Args:
        family: the file of `simulation.clients` that it is in.
        text: what it does, for people.
        clients: returns those of this kind for a shape with these topics, none or more.
        make: returns the step that one of them repeats with a random stream of its own. An ApiError
            or
            Unknown from it is counted, and breaks a promise in the quiet phase; a Violation ends
            the
            run.
        apart: drawn from a stream of its own, after all others, so that a seed keeps its other
            clients.
    """

    family: str
    text: str
    clients: Callable[[Random, tuple[TopicShape, ...]], list[ClientShape]]
    make: Callable[[Load, ClientShape], Step]
    apart: bool = False
