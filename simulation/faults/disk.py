"""Faults of disks: a broker comes back on an empty disk, and later on its old one (F22).

What was in sync on the old disk alone waits for it: nobody else may lead, and least of all the same
broker on the empty one. Only brokers that are nothing else: a voter that forgets what it voted
breaks the quorum's promises by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulation.faults.kind import Args, FaultKind
from simulation.targets import draw_broker
from simulation.world.cluster import End

if TYPE_CHECKING:
    from random import Random

    from simulation.schedule import Event
    from simulation.shape import Shape
    from simulation.swarm import World
    from simulation.world.cluster import Disk, Machine


def has_pure_brokers(shape: Shape) -> bool:
    return any(not one.controls for one in shape.brokers)


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_broker(rng, shape), {"off_ms": rng.randint(0, 3000)}


async def _swap_disk(world: World, machine: Machine, event: Event, _rng: Random) -> bool:
    if machine in world.controllers or world.promises.lossy or world.swapped:
        return False
    off_s = min(event.args["off_ms"], event.for_ms) / 1000
    world.swapped.add(machine.node_id)
    old = _swap(world, machine, None)
    await asyncio.sleep(off_s)
    await world.boot_again(machine)
    await asyncio.sleep(event.for_ms / 1000 - off_s)
    # Where it is in sync on the new disk others must be, too, before that one goes.
    await world.until(lambda: not is_relied_on(world, machine))
    _swap(world, machine, old)
    await world.boot_again(machine)
    world.swapped.discard(machine.node_id)
    return True


def _swap(world: World, machine: Machine, disk: Disk | None) -> Disk:
    world.crash(machine, End.KILL, torn=False)
    before = machine.swap_disk(disk)
    world.promises.disk_swapped(machine.node_id)
    return before


def is_relied_on(world: World, machine: Machine) -> bool:
    """Whether a partition has nobody else in sync than this broker on the disk it has now."""
    node_id = machine.node_id
    return any(
        one.isr == (node_id,) and one.directory_of(node_id) == machine.directory_id
        for topic in world.promises.metadata.image.topics.by_id.values()
        for one in topic.partitions.values()
    )


KINDS = {
    "swapped disk": FaultKind(
        "disk",
        "a broker runs on an empty disk for a while, and then on its old one",
        _draw,
        _swap_disk,
        has_pure_brokers,
    ),
}
