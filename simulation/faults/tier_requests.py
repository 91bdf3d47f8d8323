"""Faults that strike at one request of a broker's tier to another broker.

Two kinds of requests are stopping points, when they are sent or when their answer arrives: those of
the journal to the leaders of `__remote_log_metadata`, and a follower's queries for the epochs and
offsets of its leader's log. Then the broker or the leader ends, the broker stands still or is cut
off, or the log start moves: what the broker had seen is old when it goes on.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from simulation.faults.elections import up_again
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.operators.tiering import delete_below, tiered_topic
from simulation.faults.process import may_be_hit, may_go_silent, may_lose
from simulation.faults.tier_calls import links_of
from simulation.world.cluster import End

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine
    from simulation.world.network import Network

REQUESTS: dict[str, tuple[frozenset[ApiKey], bytes]] = {
    "append": (frozenset({ApiKey.PRODUCE}), b"-tier-"),
    "read": (frozenset({ApiKey.FETCH}), b"-tier-"),
    "end": (frozenset({ApiKey.LIST_OFFSETS}), b"-tier-"),
    "bounds": (frozenset({ApiKey.LIST_OFFSETS}), b"-questions"),
    "epochs": (frozenset({ApiKey.OFFSET_FOR_LEADER_EPOCH}), b"-questions"),
}
"""By name: the requests, and a part of their client id."""
BLOWS = ("kill", "power cut", "pause", "cut", "leader", "log start")
AFTER = (0, 1, 2, 5, 11)
FOR_MS_MIN, FOR_MS_MAX = 2_000, 12_000
LOG_START_PART = 0.8
LOOK_S = 0.005
_HEADER = struct.Struct(">ihhih")


def _draw(rng: Random, _shape: Shape) -> tuple[str, Args]:
    request = rng.choice(list(REQUESTS))
    args: Args = {
        "request": request,
        "blow": rng.choice(BLOWS),
        "after": rng.choice(AFTER) if request in ("append", "read") else rng.choice((0, 0, 1)),
        "answered": rng.random() < 0.5,
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }
    return "a request of the tier", args


@dataclass(eq=False)
class _Watch:
    """Search for the n-th request of one kind, on the network.

    `brokers` has the machines of brokers by host; `left` requests pass before the one to strike.
    """

    request: str
    answered: bool
    left: int
    brokers: dict[str, Machine]
    asked: tuple[str, str] | None = None
    """The hosts of the request whose answer is awaited."""
    found: tuple[Machine, Machine] | None = None
    """The broker that sent the request, and the one that it was sent to."""

    def sent(self, source: str, target: str, chunk: bytes) -> None:
        here, there = self.brokers.get(source), self.brokers.get(target)
        if self.found or self.asked or here is None or there is None:
            return
        if not _is(chunk, self.request):
            return
        if self.left > 0:
            self.left -= 1
        elif self.answered:
            self.asked = source, target
        else:
            self.found = here, there

    def arrived(self, source: str, target: str) -> None:
        if self.asked == (target, source):
            self.asked, self.found = None, (self.brokers[target], self.brokers[source])


def _is(chunk: bytes, request: str) -> bool:
    """Return whether a chunk begins with such a request."""
    keys, client = REQUESTS[request]
    if len(chunk) < _HEADER.size:
        return False
    _, key, _, _, size = _HEADER.unpack_from(chunk)
    return key in keys and client in chunk[_HEADER.size : _HEADER.size + max(size, 0)]


_watches: WeakKeyDictionary[Network, list[_Watch]] = WeakKeyDictionary()


def _watches_of(network: Network) -> list[_Watch]:
    """Return the watches of a network; they see all data that it carries."""
    known = _watches.get(network)
    if known is not None:
        return known
    watches = _watches[network] = []
    sent, delivered = network.on_send, network.on_deliver

    def on_send(source: str, target: str, chunk: bytes) -> None:
        sent(source, target, chunk)
        for one in watches:
            one.sent(source, target, chunk)

    def on_deliver(source: str, target: str, chunk: bytes) -> None:
        delivered(source, target, chunk)
        for one in watches:
            one.arrived(source, target)

    network.on_send, network.on_deliver = on_send, on_deliver
    return watches


async def _strike(world: RunWorld, event: Event, _rng: Random) -> bool:
    args, ends_s = event.args, world.loop.time() + event.for_ms / 1000
    brokers = {one.host: one for one in world.brokers}
    watch = _Watch(args["request"], args["answered"], args["after"], brokers)
    watches = _watches_of(world.loop.network)
    watches.append(watch)
    while watch.found is None and world.loop.time() < ends_s:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(LOOK_S)
    watches.remove(watch)
    if watch.found is None:
        return False
    sender, leader = watch.found
    left_s = max(0.0, ends_s - world.loop.time())
    if args["blow"] == "log start":
        return await _move_log_starts(world)
    victim = leader if args["blow"] == "leader" else sender
    if not _may_be_struck(world, victim, event):
        return False
    world.busy.add(victim.node_id)
    if args["blow"] in ("pause", "cut"):
        await _hold_back(world, victim, args["blow"], left_s)
        world.busy.discard(victim.node_id)
        return True
    world.crash(victim, End.POWER_CUT if args["blow"] == "power cut" else End.KILL)
    await asyncio.sleep(left_s)
    await up_again(world, victim)
    return True


def _may_be_struck(world: RunWorld, machine: Machine, event: Event) -> bool:
    life = machine.life
    if machine.node_id in world.busy or life is None or not life.alive:
        return False
    if event.args["blow"] in ("pause", "cut"):
        return may_go_silent(world, machine, event.for_ms)
    if event.args["blow"] == "power cut":
        return may_lose(world, machine)
    return may_be_hit(world, machine)


async def _hold_back(world: RunWorld, machine: Machine, blow: str, for_s: float) -> None:
    life = machine.life
    if blow == "pause" and life is not None:
        machine.pause(life)
        await asyncio.sleep(for_s)
        machine.resume(life)
        return
    cut = links_of(world, machine)
    for link in cut:
        link.cuts += 1
    await asyncio.sleep(for_s)
    for link in cut:
        link.cuts -= 1


async def _move_log_starts(world: RunWorld) -> bool:
    """Delete most committed records of a tiered topic, once. Returns: whether one log start
    moved."""
    topic, moved = tiered_topic(world, 0), False
    if topic is None:
        return False
    world.operator.letting_go(topic.name)
    for index in sorted(topic.partitions):
        truth = world.promises.partitions.get((topic.id, index))
        before = 0 if truth is None else int(truth.end * LOG_START_PART)
        if before:
            try:
                await delete_below(world.operator, topic, index, before)
                moved = True
            except (ApiError, OSError):
                continue  # without a leader now
    return moved


KINDS = {
    "tier request struck": OperatorKind(
        "tier_requests",
        "a broker, its leader or the log start changes at a request of the broker's tier",
        _draw,
        _strike,
        lambda shape: shape.has_tier,
    ),
}
