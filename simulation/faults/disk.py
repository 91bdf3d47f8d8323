"""Faults of disks: a broker comes back on an empty disk, for good or until it gets its old one back
(F22).

A partition that was in sync on the old disk alone waits for that disk. No other broker may lead it,
and least of all the same broker on the empty disk. Partitions may be on the empty disk alone,
because they were created or moved there in the meantime. An operator moves these to another broker
before the old disk comes back. Only pure brokers are hit: a voter that forgets its vote breaks the
quorum's promises by itself.

A static voter may lose its disk while all others have the committed records and follow one leader:
then its vote does not matter. It comes back as the same voter, with an empty disk (M8).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL, METADATA_VERSION
from protocol.ids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from simulation.faults.elections import between, cut
from simulation.faults.kind import Args, FaultKind
from simulation.faults.process import LOOK_S, has_pure_brokers, may_go_silent, may_lose
from simulation.targets import draw_broker, is_active
from simulation.world.cluster import End
from simulation.world.disks import DiskTrouble

OTHERS_MIN = 2
"""Voters in addition to the leader and the one that loses its disk: those two are no majority."""
APART_S = 0.8
"""Below the fetch timeout after which a follower abandons its leader."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from metalog.image.values import PartitionImage
    from metalog.quorum.node import QuorumNode
    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_broker(rng, shape), {"off_ms": rng.randint(0, 3000)}


async def _swap_disk(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Run the broker on an empty disk, then on its old one again.

    Without effect where records do not name the directory of a replica: the cluster could not
    distinguish the disks.
    """
    if machine in world.controllers or world.promises.ends.lossy or world.swapped:
        return False
    promises = world.promises
    if promises.metadata.image.features[METADATA_VERSION] < DIRECTORY_ASSIGNMENT_LEVEL:
        return False
    if not _directories_are_known(world, machine):
        return False
    if promises.with_elr and not promises.ends.tolerates(machine.node_id, lossy=True):
        return False
    off_s = min(event.args["off_ms"], event.for_ms) / 1000
    world.swapped.add(machine.node_id)
    world.crash(machine, End.KILL, torn=False)
    old = machine.swap_disk(None)
    world.promises.disk_swapped(machine.node_id)
    await asyncio.sleep(off_s)
    await world.boot_again(machine)
    await asyncio.sleep(event.for_ms / 1000 - off_s)
    await _leave(world, machine)
    machine.swap_disk(old)
    world.promises.disk_swapped(machine.node_id)
    await world.boot_again(machine)
    world.swapped.discard(machine.node_id)
    return True


def _directories_are_known(world: RunWorld, machine: Machine) -> bool:
    """Return whether the controllers know the directory of each replica here. For some time after
    metadata.version was raised they do not (tiered seed 708)."""
    unknown = (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED)
    return not any(
        one.directory_of(machine.node_id) in unknown
        for topic in world.promises.metadata.image.topics.by_id.values()
        for one in topic.partitions.values()
    )


async def _wipe(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Replace the disk by an empty one: flushed records are lost, too."""
    if machine in world.controllers or not may_lose(world, machine):
        return False
    if holds_alone(world, machine):
        return False
    world.crash(machine, End.POWER_CUT)
    machine.swap_disk(None)
    world.promises.disk_swapped(machine.node_id)
    await asyncio.sleep(event.for_ms / 1000)
    await world.boot_again(machine)
    return True


def holds_alone(world: RunWorld, machine: Machine) -> bool:
    """Return whether the only replica of a partition is here: promises may depend on its flushed
    records."""
    promises = world.promises
    return any(
        tuple(one.replicas) == (machine.node_id,) and topic.name not in promises.given_up
        for topic in promises.metadata.image.topics.by_id.values()
        for one in topic.partitions.values()
    )


async def _leave(world: RunWorld, machine: Machine) -> None:
    """Take the broker down once no ISR has it with its present disk, which is discarded afterwards.

    If the other ISR members are fenced before this broker is, it alone is in sync and must come
    back once more.
    """
    while True:
        while is_relied_on(world, machine):
            await _move_away(world, machine)
            await asyncio.sleep(0.1)
        world.crash(machine, End.KILL, torn=False)
        await world.until(lambda: not is_in_sync(world, machine) or is_relied_on(world, machine))
        if not is_relied_on(world, machine):
            return
        await world.boot_again(machine)


async def _move_away(world: RunWorld, machine: Machine) -> None:
    """Move partitions that are here alone to another broker, since no other replica would have
    them."""
    operator, others = world.operator, [one for one in world.brokers if one is not machine]
    for where, one in list(_kept_by(world, machine)):
        if one.replicas == (machine.node_id,):
            replicas = [others[where[1] % len(others)].node_id]
            operator.moving(where, replicas)
            await operator.insist(partial(operator.admin.reassign, where, replicas))


def is_relied_on(world: RunWorld, machine: Machine) -> bool:
    """Return whether a partition has no other clean candidate than this broker on its present disk.

    A broker that has lost unflushed records is not a clean candidate, whatever the controllers
    know.
    """
    lost = {*world.promises.ends.lossy} - {machine.node_id}
    return any(
        {*one.isr, *one.elr} - lost == {machine.node_id} for _, one in _kept_by(world, machine)
    )


def is_in_sync(world: RunWorld, machine: Machine) -> bool:
    """Return whether an ISR has this broker with its present disk. An ELR keeps it while it is off,
    but a broker that comes back with another disk is no candidate."""
    return any(machine.node_id in one.isr for _, one in _kept_by(world, machine))


def _kept_by(world: RunWorld, machine: Machine) -> Iterator[tuple[tuple[str, int], PartitionImage]]:
    """Yield the partitions, by name, whose ISR or ELR has this broker with its present disk."""
    node_id = machine.node_id
    for topic in world.promises.metadata.image.topics.by_id.values():
        for index, one in topic.partitions.items():
            if (
                node_id in (*one.isr, *one.elr)
                and one.directory_of(node_id) == machine.directory_id
            ):
                yield (topic.name, index), one


# --- voters --------------------------------------------------------------------------------------


async def _wipe_voter(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """Let one voter alone follow the leader for a moment, and replace its disk by an empty one.

    The leader then knows the voter's former log end, and no other voter has those records yet. The
    other voters are reconnected once the leader has received a fetch from the voter's new disk, or
    no longer leads. The first of them is reconnected while the empty disk cannot flush: that is no
    majority with the leader.
    """
    leader = next((one for one in world.controllers if is_active(one)), None)
    others = [one for one in world.controllers if one is not machine and one is not leader]
    if leader is None or machine is leader or machine in world.brokers:
        return False
    if len(others) < OTHERS_MIN or {one.node_id for one in (leader, *others)} & world.busy:
        return False
    if not may_go_silent(world, machine, event.for_ms):
        return False
    links, end = between(world, leader, others), world.promises.metadata.end
    cut(links, 1)
    wiped = await _is_soon(world, lambda: _is_ahead(world, leader, machine, others))
    if wiped:
        world.crash(machine, End.POWER_CUT)
        machine.swap_disk(None)
        trouble, first = DiskTrouble(hangs=True), between(world, leader, others[:1])
        machine.disk_troubles.append(trouble)
        await world.boot_again(machine)
        await _is_soon(world, lambda: _is_known(leader, machine))
        cut(first, -1)
        await _is_soon(world, lambda: world.promises.metadata.end > end)
        cut(first, 1)
        machine.disk_troubles.remove(trouble)
        trouble.hangs = False
    cut(links, -1)
    return wiped


async def _is_soon(world: RunWorld, holds: Callable[[], bool]) -> bool:
    """Return whether the condition comes true before a follower abandons its leader."""
    ends_s = world.loop.time() + APART_S
    while not holds():
        if world.loop.time() >= ends_s:
            return False
        await asyncio.sleep(LOOK_S)
    return True


def _is_ahead(
    world: RunWorld, leader: Machine, machine: Machine, others: Sequence[Machine]
) -> bool:
    """Return whether this voter alone has uncommitted records of the leader. The other voters must
    follow that leader and have all committed records on their disks."""
    end, quorums = world.promises.metadata.end, [_quorum(one) for one in (leader, machine, *others)]
    if any(one is None for one in quorums):
        return False
    leads, own, *rest = [one for one in quorums if one is not None]
    follow = {one.leader() for one in (own, *rest)} == {leads.leader()} and leads.is_leader
    have = min(one.core._replica.flushed_end for one in (leads, *rest)) >= end
    ahead = own.core._replica.flushed_end > max([end, *(one.log_end_offset for one in rest)])
    return follow and have and ahead


def _is_known(leader: Machine, machine: Machine) -> bool:
    """Return whether the leader has received a fetch from the voter's new disk, or no
    longer leads."""
    leads, own = _quorum(leader), _quorum(machine)
    if leads is None or not leads.is_leader:
        return True
    return own is not None and own.core._replica.node in leads.core.replicas


def _quorum(machine: Machine) -> QuorumNode | None:
    life = machine.life
    node = None if life is None or not life.alive else life.node
    quorum = None if node is None else node.quorum
    return quorum if quorum is not None and quorum.is_started else None


def _has_static_voters(shape: Shape) -> bool:
    """Return whether the leader and one follower are no majority of the static voters."""
    pure = [one for one in shape.controllers if one not in shape.brokers]
    return shape.kraft_version == 0 and bool(pure) and len(shape.controllers) > OTHERS_MIN + 1


KINDS = {
    "wiped disk": FaultKind(
        "disk",
        "a broker comes back on an empty disk",
        lambda rng, shape: (draw_broker(rng, shape), {}),
        _wipe,
        has_pure_brokers,
    ),
    "swapped disk": FaultKind(
        "disk",
        "a broker runs on an empty disk for a while, and then on its old one",
        _draw,
        _swap_disk,
        lambda shape: has_pure_brokers(shape) and len(shape.brokers) > 1,
    ),
    "wiped voter": FaultKind(
        "disk",
        "a voter that alone has followed its leader comes back on an empty disk",
        lambda rng, shape: (f"controller {rng.randint(1, 5)}", {}),
        _wipe_voter,
        _has_static_voters,
    ),
}
