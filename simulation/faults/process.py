"""Faults of a process and its machine: power cuts, kills, ends between two file calls, pauses, slow
processes, wall clocks that jump.

Without eligible leader replicas a broker may lose unflushed records only while every partition
keeps an ISR member that has lost nothing. No event hits such a member until the others are back in
the ISR: otherwise no broker could keep the promise. Two more restrictions apply then:

- No controller goes silent in the meantime, and nothing is lost until one session after one did. A
  controller that receives no heartbeats fences all brokers. The broker with the last heartbeat is
  fenced last and stays in the ISR, though it may be the one that has lost records.
- Nothing is lost while a controller has uncommitted records, since these may shrink an ISR, too.

With eligible leader replicas (KIP-966) a broker may lose unflushed records under one condition: in
no partition more than min ISR - 1 replicas ended uncleanly and are not back in its ISR. A kill
counts as an unclean end while some broker has lost records, since the controller cannot distinguish
them. If the recovery manager compares logs (Balanced, or at an operator's request) any number may
end. Still at most min ISR - 1 of a partition's replicas may have lost records.

`may_lose`, `may_be_hit` and `may_go_silent` are called when an event is due, and an event that they
refuse has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simulation.faults.kind import Args, FaultKind
from simulation.targets import draw_broker, draw_node, is_active
from simulation.world.cluster import CLIENT_PORT, End, Machine
from simulation.world.disks import CHANGES, DiskTrouble
from simulation.world.life import PowerCut
from simulation.world.links import Trouble

AT_ONCE_MS = 1
LATE_MS_MIN, LATE_MS_MAX = 9_000, 25_000
"""Above every session timeout."""
COSTS_MS = (0.1, 0.5, 2.0)
DRIFTS = (-0.9, -0.05, 0.05, 0.5, 3.0)
"""Seconds that a wall clock gains in each second."""
JUMPS_MS = (500, 60_000, 3_000_000)
"""Below an hour: records from further in the future are refused."""
SECOND_MS_MAX = 1_000
"""Below every session timeout."""
LOOK_S = 0.01
SESSION_MS = 9000
"""Session timeout of brokers, unless the shape sets another."""

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape


def may_be_hit(world: RunWorld, machine: Machine) -> bool:
    """Return whether the promises hold if this machine is out of action for a while."""
    promises = world.promises
    if promises.with_elr and machine in world.brokers and (promises.ends.lossy or world.swapped):
        return promises.ends.tolerates(machine.node_id, lossy=False, away=world.swapped)
    if machine not in world.brokers or not promises.ends.lossy:
        return True
    return promises.ends.spares(machine.node_id, world.busy)


def may_lose(world: RunWorld, machine: Machine) -> bool:
    """Return whether the promises hold if this machine loses its unflushed data."""
    if machine not in world.brokers:
        return True
    if world.promises.with_elr:
        return world.promises.ends.tolerates(machine.node_id, lossy=True, away=world.swapped)
    if world.loop.time() < world.heard_s or _is_undecided(world):
        return False
    others = {*world.promises.ends.lossy, *world.busy, *world.swapped} - {machine.node_id}
    brokers = {one.node_id for one in world.brokers}
    return world.promises.ends.spares(machine.node_id) and not others & brokers


def _is_undecided(world: RunWorld) -> bool:
    """Return whether a controller has uncommitted records: the ISR may be smaller by them."""
    nodes = [one.life.node for one in world.controllers if one.life is not None]
    quorums = [one.quorum for one in nodes if one is not None]
    end = world.promises.metadata.end
    return any(one and one.is_started and one.log_end_offset > end for one in quorums)


def may_go_silent(world: RunWorld, machine: Machine, for_ms: int) -> bool:
    """Return whether the promises hold if this machine runs, but receives messages late or not at
    all, for this time. If so, the time until which a session may expire is noted."""
    if world.promises.with_elr:
        note_silence(world, for_ms)
        return True
    if not may_be_hit(world, machine):
        return False
    if machine in world.controllers:
        if world.promises.ends.lossy:
            return False
        note_silence(world, for_ms)
    return True


def note_silence(world: RunWorld, for_ms: int) -> None:
    """Note that a session may expire, since a machine receives messages late for this time.

    This applies with eligible leader replicas, too: they may be turned off before that time is
    over, and then a broker that has lost records may be alone in an ISR (seed 70016).
    """
    silent_ms = for_ms + world.shape.setting_ms("broker.session.timeout.ms", SESSION_MS)
    world.heard_s = max(world.heard_s, world.loop.time() + silent_ms / 1000)


@contextlib.contextmanager
def lowering(world: RunWorld) -> Iterator[bool]:
    """Enter a block whose request may lower the number of survivable losses: replicas leave, or min
    ISR falls.

    Yields: False if a broker has lost records already; then the request must not be sent.
    """
    promises = world.promises
    promises.ends.lowering += 1
    try:
        yield not promises.ends.lossy
    finally:
        promises.ends.lowering -= 1


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_node(rng, shape), {}


def _draw_kill(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw a kill after which the node starts at once, soon, or late."""
    target = draw_node(rng, shape)
    args: Args = {}
    when = rng.random()
    if when < 0.2:
        args["for_ms"] = AT_ONCE_MS
    elif when > 0.8:
        args["for_ms"] = rng.randint(LATE_MS_MIN, LATE_MS_MAX)
    return target, args


def _draw_power_cut(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = _draw_kill(rng, shape)
    return target, {**args, "torn": rng.random() < 0.5, "dark": rng.random() < 0.5}


def _draw_crash(rng: Random, shape: Shape) -> tuple[str, Args]:
    after = rng.choice((0, 1, 5, 20, 100)) + rng.randint(0, 20)
    return draw_node(rng, shape), {"after": after, "cut": rng.random() < 0.5}


def _draw_slow(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_node(rng, shape), {"cost_ms": rng.choice(COSTS_MS)}


def _draw_jump(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_node(rng, shape), {"by_ms": rng.choice((-1, 1)) * rng.choice(JUMPS_MS)}


async def _power_cut(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    """Cut the power. With `dark` the whole machine is off, and peers receive no packets; else its
    connections are reset at once, as by a switch that monitors it."""
    if not may_lose(world, machine):
        return False
    dark = Trouble(rng) if event.args.get("dark") else None
    world.crash(machine, End.POWER_CUT, torn=bool(event.args.get("torn")), dark=dark)
    await asyncio.sleep(event.for_ms / 1000)
    await world.boot_again(machine)
    return True


async def _kill(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    if not may_be_hit(world, machine):
        return False
    world.crash(machine, End.KILL, torn=False)
    await asyncio.sleep(event.for_ms / 1000)
    await world.boot_again(machine)
    return True


async def _crash(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """End the node inside its own code, between two file calls."""
    cut = bool(event.args["cut"])
    life = machine.life
    assert life is not None

    def end() -> None:
        if may_lose(world, machine) if cut else may_be_hit(world, machine):
            world.crash(machine, End.POWER_CUT if cut else End.KILL)
            raise PowerCut(f"{life}: crash at a file call")

    trouble = DiskTrouble(frozenset(CHANGES), after=event.args["after"], most=1, then=end)
    until_s = world.loop.time() + event.for_ms / 1000
    machine.disk_troubles.append(trouble)
    await asyncio.wait([life.over], timeout=event.for_ms / 1000)
    machine.disk_troubles.remove(trouble)
    if life.alive:
        return False
    await asyncio.sleep(max(0.0, until_s - world.loop.time()))
    await world.boot_again(machine)
    return True


async def _slow(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    life = machine.life
    if life is None or not may_go_silent(world, machine, event.for_ms):
        return False
    waited = life.waited
    life.cost_s = event.args["cost_ms"] / 1000
    await asyncio.sleep(event.for_ms / 1000)
    life.cost_s = 0.0
    return life.waited > waited


def _draw_hours(rng: Random, _shape: Shape) -> tuple[str, Args]:
    """Draw a jump forward more often than back, since a jump forward expires offsets."""
    by_ms = rng.choice((-1, 1, 1, 1)) * rng.choice(JUMPS_MS)
    return "leader of __consumer_offsets-0", {"by_ms": by_ms}


async def _jump(_world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Let the wall clock jump and back. No timeout may change: timeouts use the monotonic clock."""
    by_ms, reads = event.args["by_ms"], machine.clock.reads
    machine.clock.jump(by_ms)
    await asyncio.sleep(event.for_ms / 1000)
    machine.clock.jump(-by_ms)
    return machine.clock.reads > reads


def _draw_drift(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_node(rng, shape), {"rate": rng.choice(DRIFTS)}


async def _drift(_world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Let the wall clock drift, and keep the time gained."""
    reads = machine.clock.reads
    machine.clock.drift(event.args["rate"])
    await asyncio.sleep(event.for_ms / 1000)
    machine.clock.drift(0.0)
    return machine.clock.reads > reads


async def _pause(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    life = machine.life
    if life is None or not may_go_silent(world, machine, event.for_ms):
        return False
    machine.pause(life)
    await asyncio.sleep(event.for_ms / 1000)
    waited = bool(life.parked)
    machine.resume(life)
    return waited


def has_pure_brokers(shape: Shape) -> bool:
    return any(not one.controls for one in shape.brokers)


def _draw_second(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_broker(rng, shape), {"for_ms": rng.randint(100, SECOND_MS_MAX)}


async def _second(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Start a second process with the broker's id on another host with an empty disk.

    It could register once the session of the first process has expired, as in Kafka. So it ends
    before any other fault could expire that session.
    """
    if machine in world.controllers or not _is_undisturbed(world, machine):
        return False
    host = f"{machine.host}-{event.name}".replace(" ", "-")
    settings = dict(machine.settings)
    settings["listeners"] = settings["listeners"].replace(f"//{machine.host}:", f"//{host}:")
    second = Machine(machine.cluster, machine.node_id, settings, host)
    life = second.boot()
    hosts = [host, *(one.host for one in world.controllers)]
    ends_s, asked = world.loop.time() + event.for_ms / 1000, False
    while world.loop.time() < ends_s and _is_undisturbed(world, machine):
        await asyncio.sleep(LOOK_S)
        asked |= any(source == host for source, _ in world.loop.network.between(hosts))
    second.end(life, End.KILL)
    return asked


async def _taken_port(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Stop the broker cleanly, let its next start fail on a taken port, and start it once more."""
    life, network = machine.life, world.loop.network
    if machine in world.controllers or life is None or not life.ready.done():
        return False
    if not may_be_hit(world, machine):
        return False
    await world.stop(machine)
    taken = network.listen(asyncio.Protocol, machine.host, CLIENT_PORT)
    failing = world.boot(machine)
    ends: list[asyncio.Future[Any]] = [failing.ready, failing.over]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    failed = failing.ready.done() and failing.ready.exception() is not None
    if failing.alive:
        await world.stop(machine)
    network.addresses.remove(taken)
    await asyncio.sleep(event.for_ms / 1000)
    await world.boot_again(machine)
    return failed


def _is_undisturbed(world: RunWorld, machine: Machine) -> bool:
    """Return whether this broker is unfenced, no other node has trouble, and a controller is
    active. A controller about to become active may have written before that this broker is fenced
    (seed 6326)."""
    broker = world.promises.metadata.image.cluster.brokers.get(machine.node_id)
    if broker is None or broker.fenced or not world.busy <= {machine.node_id}:
        return False
    return any(is_active(one) for one in world.controllers)


KINDS = {
    "power cut": FaultKind(
        "process", "the machine loses power, and what was not flushed", _draw_power_cut, _power_cut
    ),
    "kill": FaultKind("process", "the process ends at once; its files stay", _draw_kill, _kill),
    "crash": FaultKind(
        "process", "the process, or the power, ends between two file calls", _draw_crash, _crash
    ),
    "slow process": FaultKind(
        "process", "whatever a process does takes it some time", _draw_slow, _slow
    ),
    "clock jump": FaultKind(
        "process", "the wall clock is wrong for a while, by up to an hour", _draw_jump, _jump
    ),
    "coordinator's clock": FaultKind(
        "process",
        "the wall clock of who coordinates groups is wrong for a while",
        _draw_hours,
        _jump,
        possible=lambda shape: shape.has_groups,
    ),
    "clock drift": FaultKind(
        "process", "the wall clock runs too fast or too slow", _draw_drift, _drift
    ),
    "pause": FaultKind("process", "the process stands still; its connections stay", _draw, _pause),
    "second process": FaultKind(
        "process",
        "a second process with the id of a broker that lives tries to register",
        _draw_second,
        _second,
        has_pure_brokers,
    ),
    "taken port": FaultKind(
        "process",
        "a broker stops in good order, and its next start fails on a taken port",
        lambda rng, shape: (draw_broker(rng, shape), {}),
        _taken_port,
        has_pure_brokers,
    ),
}
