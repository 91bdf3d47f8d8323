"""Faults of the network: links that are cut, both ways or one, from all or from some."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulation.faults.kind import Args, FaultKind
from simulation.faults.process import may_go_silent
from simulation.targets import draw_node

if TYPE_CHECKING:
    from random import Random

    from simulation.schedule import Event
    from simulation.shape import Shape
    from simulation.swarm import SwarmWorld
    from simulation.world.cluster import Machine

GROUPS = ("all", "controllers", "brokers")


def has_links(shape: Shape) -> bool:
    return len(shape.nodes) > 1


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_node(rng, shape), {"from": rng.choice(GROUPS)}


async def _cut_off(
    world: SwarmWorld, machine: Machine, event: Event, out: bool, back: bool
) -> bool:
    if not may_go_silent(world, machine, event.for_ms):
        return False
    network = world.loop.network
    groups = {"controllers": world.controllers, "brokers": world.brokers}
    links = []
    for other in groups.get(event.args["from"], world.cluster.machines):
        if other is not machine:
            links += [network.link(machine.host, other.host)] if out else []
            links += [network.link(other.host, machine.host)] if back else []
    held = sum(link.held for link in links)
    for link in links:
        link.cuts += 1
    await asyncio.sleep(event.for_ms / 1000)
    for link in links:
        link.cuts -= 1
    return sum(link.held for link in links) > held


async def _both(world: SwarmWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    return await _cut_off(world, machine, event, True, True)


async def _out(world: SwarmWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    return await _cut_off(world, machine, event, True, False)


async def _back(world: SwarmWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    return await _cut_off(world, machine, event, False, True)


KINDS = {
    "cut": FaultKind(
        "network", "a node is cut off, from all or from one role", _draw, _both, has_links
    ),
    "cut out": FaultKind("network", "what a node sends does not arrive", _draw, _out, has_links),
    "cut in": FaultKind(
        "network", "what others send to a node does not arrive", _draw, _back, has_links
    ),
}
