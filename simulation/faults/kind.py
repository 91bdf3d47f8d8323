"""A kind of fault, or of what operators do: drawn before a run, done when it is due, known by
whether it took effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shape import Shape
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
        draw: the target and the arguments of one event (`for_ms`: how long; drawn if left out).
        run: does it, and undoes it after `event.for_ms`; returns whether it took effect. The
            machine is busy meanwhile: no other event is done to it. `rng` is the event's own.
        possible: whether a cluster of this shape has something to do it to.
    """

    family: str
    text: str
    draw: Callable[[Random, Shape], tuple[str, Args]]
    run: Callable[[RunWorld, Machine, Event, Random], Awaitable[bool]]
    possible: Callable[[Shape], bool] = anywhere


@dataclass(frozen=True)
class OperatorKind:
    """Something that an operator asks of the cluster as a whole, with admin requests.

    As `FaultKind`, but no machine is busy with it, and the target is a text of the kind's own.
    """

    family: str
    text: str
    draw: Callable[[Random, Shape], tuple[str, Args]]
    run: Callable[[RunWorld, Event, Random], Awaitable[bool]]
    possible: Callable[[Shape], bool] = anywhere
