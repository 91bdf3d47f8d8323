"""Faults that strike a broker at one call of the object store: before it, or before its answer.

A crash test stops at file operations; a copy, a deletion, a beginning or a read that waits for the
store is in another state. The n-th call of any broker ends its process or its power, or cuts it off
from all others for a while: then another leader is elected, and the broker's plan is old.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.faults.elections import up_again
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.process import may_be_hit, may_go_silent, may_lose
from simulation.world.cluster import End
from simulation.world.life import PowerCut
from simulation.world.store import CallStop

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine
    from simulation.world.links import Link

BLOWS = ("kill", "kill", "power cut", "cut", "cut")
CALLS = ("put", "put", "delete", "head", "get", "")
AFTER = (0, 1, 2, 5, 11, 30)
FOR_MS_MIN, FOR_MS_MAX = 2_000, 12_000
LOOK_S = 0.005


def _draw(rng: Random, _shape: Shape) -> tuple[str, Args]:
    args: Args = {
        "blow": rng.choice(BLOWS),
        "call": rng.choice(CALLS),
        "after": rng.choice(AFTER),
        "answered": rng.random() < 0.5,
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }
    return "a call of the store", args


@dataclass
class _Blow:
    """What happens to the broker that makes the call."""

    world: RunWorld
    event: Event
    victim: Machine | None = None
    cut: list[Link] = field(default_factory=list)

    def falls(self, host: str) -> None:
        """A node is at the call. Raises PowerCut where its life ends there."""
        world, blow = self.world, self.event.args["blow"]
        machine = next((one for one in world.brokers if one.host == host), None)
        life = None if machine is None else machine.life
        if self.victim is not None or machine is None or machine.node_id in world.busy:
            return
        if life is None or not life.alive or not self._is_allowed(machine):
            return
        self.victim = machine
        world.busy.add(machine.node_id)
        if blow != "cut":
            world.crash(machine, End.POWER_CUT if blow == "power cut" else End.KILL)
            raise PowerCut(f"{life}: it ends at a call of the store")
        self.cut = links_of(world, machine)
        for link in self.cut:
            link.cuts += 1

    def _is_allowed(self, machine: Machine) -> bool:
        if self.event.args["blow"] == "cut":
            return may_go_silent(self.world, machine, self.event.for_ms)
        if self.event.args["blow"] == "power cut":
            return may_lose(self.world, machine)
        return may_be_hit(self.world, machine)


async def _strike(world: RunWorld, event: Event, _rng: Random) -> bool:
    args, ends_s = event.args, world.loop.time() + event.for_ms / 1000
    blow = _Blow(world, event)
    stop = CallStop(args["call"], args["after"], answered=args["answered"], then=blow.falls)
    world.store.stops.append(stop)
    while blow.victim is None and world.loop.time() < ends_s:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(LOOK_S)
    world.store.stops.remove(stop)
    if blow.victim is None:
        return False
    await asyncio.sleep(max(0.0, ends_s - world.loop.time()))
    for link in blow.cut:
        link.cuts -= 1
    if args["blow"] == "cut":
        world.busy.discard(blow.victim.node_id)
    else:
        await up_again(world, blow.victim)
    return True


def links_of(world: RunWorld, machine: Machine) -> list[Link]:
    """Both ways between a machine and all other nodes."""
    network, here = world.loop.network, machine.host
    others = [one.host for one in world.cluster.machines if one is not machine]
    ways = [(here, there) for there in others] + [(there, here) for there in others]
    return [network.link(*way) for way in ways]


KINDS = {
    "store call struck": OperatorKind(
        "tier_calls",
        "a broker ends, or is cut off, at one of its calls of the object store",
        _draw,
        _strike,
        lambda shape: shape.has_tier,
    ),
}
