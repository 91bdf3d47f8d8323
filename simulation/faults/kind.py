"""A kind of fault, or of operator's request: drawn before a run, executed when it is due, and
counted if it took effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine

Args = dict[str, Any]


def anywhere(_shape: Shape) -> bool:
    return True


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault.

    Args:
        family: the file of `simulation.faults` that it is in.
        text: what it does, for people.
        draw: returns target and arguments of one event (`for_ms`: its duration; drawn if absent).
        run: executes it, and undoes it after `event.for_ms`; returns whether it took effect. The
            machine is busy in the meantime, so no other event hits it. `rng` is the event's own.
        possible: returns whether the fault can occur in a cluster of this shape.
    """

    family: str
    text: str
    draw: Callable[[Random, Shape], tuple[str, Args]]
    run: Callable[[RunWorld, Machine, Event, Random], Awaitable[bool]]
    possible: Callable[[Shape], bool] = anywhere


@dataclass(frozen=True)
class OperatorKind:
    """A change of the whole cluster by an operator, with admin requests.

    As `FaultKind`, but no machine is busy with it, and the target is a text of the kind's own.
    """

    family: str
    text: str
    draw: Callable[[Random, Shape], tuple[str, Args]]
    run: Callable[[RunWorld, Event, Random], Awaitable[bool]]
    possible: Callable[[Shape], bool] = anywhere
