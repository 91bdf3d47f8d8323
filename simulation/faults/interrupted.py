"""Starts and clean stops that a crash interrupts at a file call.

`kraftbox sim` draws these faults only if `--faults` names them, so that seeds keep their events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simulation.faults.kind import Args, FaultKind
from simulation.faults.process import may_be_hit, may_lose
from simulation.targets import draw_node
from simulation.world.cluster import End
from simulation.world.disks import CHANGES, DiskTrouble
from simulation.world.life import PowerCut

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine, NodeLife

CALLS_LOG2_MAX = 8.0
STARTS_MAX = 3


def _calls(rng: Random) -> int:
    """Draw a number of file calls: small ones as often as large ones."""
    return round(2 ** rng.uniform(0, CALLS_LOG2_MAX))


def _draw_start(rng: Random, shape: Shape) -> tuple[str, Args]:
    calls = [_calls(rng) for _ in range(rng.randint(1, STARTS_MAX))]
    cut, torn = rng.random() < 0.7, rng.random() < 0.5
    return draw_node(rng, shape), {"calls": calls, "cut": cut, "torn": torn}


def _draw_stop(rng: Random, shape: Shape) -> tuple[str, Args]:
    cut, torn = rng.random() < 0.7, rng.random() < 0.5
    return draw_node(rng, shape), {"calls": [_calls(rng)], "cut": cut, "torn": torn}


async def _interrupted_start(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Crash the node, and then each of its next starts at the given file call.

    Returns: True if a start was interrupted.
    """
    if not _may_crash(world, machine, event):
        return False
    world.crash(machine, _end(event), torn=event.args["torn"])
    interrupted = False
    for calls in event.args["calls"]:
        with _crash_at(world, machine, event, calls):
            life = world.boot(machine)
            ends: list[asyncio.Future[Any]] = [life.ready, life.over]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        interrupted |= not life.alive
        if life.alive:
            if not life.ready.exception():
                return interrupted
            world.crash(machine, End.KILL)  # for instance, its id belongs to the process before
    await world.boot_again(machine)
    return interrupted


async def _interrupted_stop(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Stop the node cleanly, and crash it at the given file call of that.

    Returns: True if the stop was interrupted.
    """
    life = machine.life
    if life is None or not life.ready.done() or not _may_crash(world, machine, event):
        return False
    with _crash_at(world, machine, event, event.args["calls"][0]):
        await world.stop(machine)
    await asyncio.sleep(event.for_ms / 1000)
    await world.boot_again(machine)
    return life.end is not End.STOP


def _may_crash(world: RunWorld, machine: Machine, event: Event) -> bool:
    return may_lose(world, machine) if event.args["cut"] else may_be_hit(world, machine)


def _end(event: Event) -> End:
    return End.POWER_CUT if event.args["cut"] else End.KILL


@contextmanager
def _crash_at(world: RunWorld, machine: Machine, event: Event, calls: int) -> Iterator[None]:
    """Crash the node at the n-th changing file call in the block, if the promises allow it then."""

    def crash() -> None:
        life: NodeLife | None = machine.life
        if life is not None and life.alive and _may_crash(world, machine, event):
            world.crash(machine, _end(event), torn=event.args["torn"])
            raise PowerCut(f"{life}: crash at a file call")

    trouble = DiskTrouble(frozenset(CHANGES), after=calls - 1, most=1, then=crash)
    machine.disk_troubles.append(trouble)
    try:
        yield
    finally:
        machine.disk_troubles.remove(trouble)


KINDS = {
    "interrupted start": FaultKind(
        "interrupted",
        "a node crashes, and its next starts crash at a file call",
        _draw_start,
        _interrupted_start,
    ),
    "interrupted stop": FaultKind(
        "interrupted",
        "a node stops cleanly and crashes at a file call of that",
        _draw_stop,
        _interrupted_stop,
    ),
}
