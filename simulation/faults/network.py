"""Faults of the network: links that are cut, late, slow, choked or torn; connections that one side
has lost.

Each fault affects the links between one node and some other hosts for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.faults.kind import Args, FaultKind
from simulation.faults.process import may_go_silent
from simulation.targets import draw_node
from simulation.world.links import Trouble
from simulation.world.network import CLIENT_HOST

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine
    from simulation.world.links import Link

GROUPS = ("all", "controllers", "brokers", "clients", "everybody")
"""The other side of a node's links: all other nodes, those of a role, the clients, or nodes and
clients."""
LATE_MS = (20.0, 100.0, 400.0)
BYTES_PER_S = (2_000.0, 20_000.0, 100_000.0)
RESET_CHANCES = (0.02, 0.1, 0.5)
PIECES = (2, 4, 12)
WINDOW_BYTES = (0, 200, 4_000)


def has_others(shape: Shape) -> bool:
    return len(shape.nodes) > 1


def _group(rng: Random, shape: Shape) -> str:
    return rng.choice(GROUPS) if has_others(shape) else "clients"


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_node(rng, shape), {"from": _group(rng, shape)}


def _hosts(world: RunWorld, machine: Machine, group: str) -> list[str]:
    """Return the hosts of a group or, where a schedule names one, of one node."""
    if group.startswith("node "):
        return [group.replace(" ", "-")]
    nodes = {
        "controllers": world.controllers,
        "brokers": world.brokers,
        "clients": [],
    }.get(group, world.cluster.machines)
    hosts = [other.host for other in nodes if other is not machine]
    return [*hosts, CLIENT_HOST] if group in ("clients", "everybody") else hosts


def _links(
    world: RunWorld, machine: Machine, event: Event, *, out: bool = True, back: bool = True
) -> list[Link]:
    network, links = world.loop.network, []
    for host in _hosts(world, machine, event.args["from"]):
        links += [network.link(machine.host, host)] if out else []
        links += [network.link(host, machine.host)] if back else []
    return links


# --- cuts -----------------------------------------------------------------------------------------


async def _cut_off(world: RunWorld, machine: Machine, event: Event, out: bool, back: bool) -> bool:
    if not may_go_silent(world, machine, event.for_ms):
        return False
    links = _links(world, machine, event, out=out, back=back)
    held = sum(link.held for link in links)
    for link in links:
        link.cuts += 1
    await asyncio.sleep(event.for_ms / 1000)
    for link in links:
        link.cuts -= 1
    return sum(link.held for link in links) > held


async def _both(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    return await _cut_off(world, machine, event, True, True)


async def _out(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    return await _cut_off(world, machine, event, True, False)


async def _back(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    return await _cut_off(world, machine, event, False, True)


# --- troubles -------------------------------------------------------------------------------------


def _draw_trouble(**choices: tuple[Any, ...]) -> Callable[[Random, Shape], tuple[str, Args]]:
    """Return a `draw` that chooses one value for each name, in addition to the group of hosts."""

    def draw(rng: Random, shape: Shape) -> tuple[str, Args]:
        target, args = _draw(rng, shape)
        return target, {**args, **{name: rng.choice(choices[name]) for name in choices}}

    return draw


async def _trouble(hit: str, world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    """Lay the `Trouble` of `event.args` on both directions; `hit` names the effect that counts."""
    if not may_go_silent(world, machine, event.for_ms):
        return False
    wanted = {name: value for name, value in event.args.items() if name not in ("from", "for_ms")}
    trouble = Trouble(rng, **wanted)
    links = _links(world, machine, event)
    world.loop.network.lay(trouble, links)
    await asyncio.sleep(event.for_ms / 1000)
    world.loop.network.lift(trouble, links)
    return trouble.hits[hit] > 0


async def _half_open(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    if not may_go_silent(world, machine, event.for_ms):
        return False
    network, hole = world.loop.network, Trouble(rng)
    hosts = _hosts(world, machine, event.args["from"])
    network.half_open(machine.host, hosts, hole, here=bool(event.args["here"]))
    await asyncio.sleep(event.for_ms / 1000)
    network.fill(hole)
    return hole.hits["vanished"] > 0


def _draw_stalled(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw a stall between nodes, after which the sender abandons its connections soon, late or
    never."""
    args: Args = {"from": rng.choice(("all", "controllers", "brokers"))}
    args["here"] = rng.random() < 0.5
    args["gives_up_ms"] = rng.choice((None, 0, 100, 1_000))
    return draw_node(rng, shape), args


async def _stalled(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    if not may_go_silent(world, machine, event.for_ms):
        return False
    network, hold = world.loop.network, Trouble(rng)
    hosts, gives_up_ms = _hosts(world, machine, event.args["from"]), event.args["gives_up_ms"]
    network.stall(machine.host, hosts, hold, here=bool(event.args["here"]))
    patience_ms = event.for_ms if gives_up_ms is None else min(gives_up_ms, event.for_ms)
    await asyncio.sleep(patience_ms / 1000)
    if gives_up_ms is not None:
        network.give_up(hold)
    await asyncio.sleep((event.for_ms - patience_ms) / 1000)
    network.go_on(hold)
    return hold.hits["held"] > 0


KINDS = {
    "cut": FaultKind("network", "a node is cut off, from all or from some", _draw, _both),
    "cut out": FaultKind("network", "what a node sends does not arrive", _draw, _out),
    "cut in": FaultKind("network", "what others send to a node does not arrive", _draw, _back),
    "late": FaultKind(
        "network",
        "what a node sends and gets is late, some of it very late",
        _draw_trouble(late_ms=LATE_MS),
        partial(_trouble, "late"),
    ),
    "slow link": FaultKind(
        "network",
        "so many bytes a second go over all links of a node",
        _draw_trouble(bytes_per_s=BYTES_PER_S),
        partial(_trouble, "slow"),
    ),
    "full buffers": FaultKind(
        "network",
        "a node and its peers must wait before they send more, over a slow link",
        _draw_trouble(window_bytes=WINDOW_BYTES, bytes_per_s=BYTES_PER_S),
        partial(_trouble, "blocked"),
    ),
    "pieces": FaultKind(
        "network",
        "what a node sends and gets arrives in random pieces",
        _draw_trouble(pieces_max=PIECES),
        partial(_trouble, "pieces"),
    ),
    "reset": FaultKind(
        "network",
        "connections of a node break in the middle of a frame",
        _draw_trouble(reset_chance=RESET_CHANCES),
        partial(_trouble, "reset"),
    ),
    "half-open": FaultKind(
        "network",
        "one side has lost its connections, the other one believes in them",
        _draw_trouble(here=(True, False)),
        _half_open,
    ),
    "stalled": FaultKind(
        "network",
        "what one side sent is stuck; perhaps it gives up, and the old requests come after all",
        _draw_stalled,
        _stalled,
        has_others,
    ),
}
