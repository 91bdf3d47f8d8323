"""Operators and replicas: reassignments, cancelled reassignments, and elections.

An unclean election is requested for one topic alone, the last of a shape that has others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.elections import ElectionType
from protocol.errors import ErrorCode
from simulation.faults.elections import up_again
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.process import lowering, may_be_hit
from simulation.shapes.drawing import may_give_up
from simulation.shapes.shape import FACTOR_MAX
from simulation.targets import partition_image
from simulation.world.cluster import End

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine


def has_brokers(shape: Shape) -> bool:
    return len(shape.brokers) > 1


def _draw_partition(rng: Random, _shape: Shape) -> tuple[str, Args]:
    which = rng.randrange(100)
    return f"partition {which}", {"which": which}


def _draw_move(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = _draw_partition(rng, shape)
    brokers = [one.node_id for one in shape.brokers]
    count = rng.randint(1, min(FACTOR_MAX, len(brokers)))
    return target, {**args, "replicas": rng.sample(brokers, count)}


def _draw_take_back(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = _draw_move(rng, shape)
    return target, {**args, "for_ms": rng.choice([1, 3, 20, 100])}


def _draw_unclean(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw an event that lasts long enough for sessions to expire."""
    return f"topic {shape.topics[-1].name}", {"for_ms": rng.randint(8_000, 20_000)}


async def _move(world: RunWorld, event: Event) -> tuple[str, int] | None:
    operator = world.operator
    found = operator.partition(event.args["which"])
    if found is None:
        return None
    where = found[:2]
    operator.moving(where, event.args["replicas"])
    ask = operator.admin.reassign
    with lowering(world) as allowed:
        if not allowed:
            return None
        code = await operator.insist(lambda: ask(where, event.args["replicas"]))
    return where if code is ErrorCode.NONE else None


async def _reassign(world: RunWorld, event: Event, _rng: Random) -> bool:
    return await _move(world, event) is not None


async def _take_back(world: RunWorld, event: Event, _rng: Random) -> bool:
    operator = world.operator
    where = await _move(world, event)
    if where is None:
        return False
    await asyncio.sleep(event.for_ms / 1000)
    moving = operator.is_moving(*where)
    code = await operator.insist(lambda: operator.admin.reassign(where, None))
    return moving and code is ErrorCode.NONE


async def elect(
    world: RunWorld, kind: ElectionType, where: tuple[str, int], leader: int | None = None
) -> bool:
    """Request an election. Returns: whether the partition got the requested leader."""
    operator, elected = world.operator, []
    leaders = None if leader is None else {where: leader}
    if kind is not ElectionType.PREFERRED:
        world.promises.metadata.elections.asked.add(where)

    async def ask() -> None:
        results = await operator.admin.elect_leaders(kind, [where], leaders)
        elected.append(where in results and results[where].number == ErrorCode.NONE)

    await operator.insist(ask)
    return elected == [True]


async def _preferred(world: RunWorld, event: Event, _rng: Random) -> bool:
    found = world.operator.partition(event.args["which"])
    if found is None:
        return False
    return await elect(world, ElectionType.PREFERRED, found[:2])


async def _unclean(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Request unclean elections of all partitions of a topic, one of which has only a replica up
    that was removed from its ISR."""
    operator = world.operator
    name = event.target.removeprefix("topic ")
    topic = next((one for one in operator.topics() if one.name == name), None)
    if topic is None or not operator.may_give_up(name):
        return False
    operator.giving_up(name)
    ends_s = world.loop.time() + event.for_ms / 1000
    index = min(topic.partitions, key=lambda one: topic.partitions[one].leader)
    down, boots = await _strand(world, name, index, ends_s)
    kind = ElectionType.UNCLEAN
    elected = [await elect(world, kind, (name, index)) for index in sorted(topic.partitions)]
    # A node may wait for others before it is ready.
    await asyncio.gather(*boots, *(up_again(world, machine) for machine in down))
    return any(elected)


async def _strand(
    world: RunWorld, topic: str, index: int, ends_s: float
) -> tuple[list[Machine], list[asyncio.Future[None]]]:
    """Make a partition leaderless: kill a follower until it has left the ISR, then kill the other
    replicas, and start the follower.

    It stops at `ends_s` wherever it is. Returns: the machines that are down, and the boots in
    progress.
    """
    image = partition_image(world, f"{topic}-{index}")
    ids = [] if image is None else image.replicas
    replicas = [one for one in world.brokers if one.node_id in ids]
    # If a replica's node is a controller, the operator's requests would fail. If there is no
    # leader, the partition is already leaderless.
    if image is None or len(replicas) < 2 or any(one in world.controllers for one in replicas):
        return [], []
    if image.leader < 0:
        return [], []
    behind = next(one for one in replicas if one.node_id != image.leader)
    if not _kill(world, behind):
        return [], []
    await _before(world, ends_s, lambda: not _has(world, topic, index, behind.node_id))
    if _has(world, topic, index, behind.node_id):
        return [behind], []
    down = [one for one in replicas if one is not behind and _kill(world, one)]
    boot = asyncio.ensure_future(up_again(world, behind))
    await _before(world, ends_s, lambda: boot.done() and _nobody_leads(world, topic, index))
    return down, [boot]


def _has(world: RunWorld, topic: str, index: int, node_id: int) -> bool:
    image = partition_image(world, f"{topic}-{index}")
    return image is not None and node_id in image.isr


def _nobody_leads(world: RunWorld, topic: str, index: int) -> bool:
    image = partition_image(world, f"{topic}-{index}")
    return image is None or image.leader < 0


def _kill(world: RunWorld, machine: Machine) -> bool:
    life = machine.life
    if life is None or not life.alive or machine.node_id in world.busy:
        return False
    if not may_be_hit(world, machine):
        return False
    world.busy.add(machine.node_id)
    world.crash(machine, End.KILL)
    return True


async def _before(world: RunWorld, ends_s: float, holds: Callable[[], bool]) -> None:
    await world.until(lambda: holds() or world.loop.time() >= ends_s)


KINDS = {
    "reassign": OperatorKind(
        "operators", "a partition moves to other brokers", _draw_move, _reassign, has_brokers
    ),
    "cancel reassignment": OperatorKind(
        "operators",
        "a partition is to move, and then is not",
        _draw_take_back,
        _take_back,
        has_brokers,
    ),
    "preferred election": OperatorKind(
        "operators", "the first replica is to lead", _draw_partition, _preferred, has_brokers
    ),
    "unclean election": OperatorKind(
        "operators", "anybody is to lead", _draw_unclean, _unclean, may_give_up
    ),
}
