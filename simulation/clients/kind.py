"""A kind of client: drawn before a run, made when it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from simulation.clients.load import Load, Step
    from simulation.shape import ClientShape, TopicShape


@dataclass(frozen=True)
class ClientKind:
    """One kind of client.

    Args:
        family: the file of `simulation.clients` that it is in.
        text: what it does, for people.
        clients: those of this kind that a shape with these topics gets, none or more.
        make: the step that one of them takes again and again, with the client's own chance. What
            it raises as ApiError or Unknown is counted, and is a broken promise in the quiet phase;
            a Violation ends the run.
        apart: drawn from a stream of its own, after all others: what a seed had before stays.
    """

    family: str
    text: str
    clients: Callable[[Random, tuple[TopicShape, ...]], list[ClientShape]]
    make: Callable[[Load, ClientShape], Step]
    apart: bool = False
