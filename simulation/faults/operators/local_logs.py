"""Operators and what replicas have locally: thresholds of leaders change, for a topic or for all
(KIP-1303), empty followers are to begin behind the tier, or no more (KIP-1023), and a partition
gets a replica that has nothing yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.admin import ResourceType
from protocol.errors import ErrorCode
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.operators.configs import CLUSTER, set_config, set_for_a_while
from simulation.faults.process import lowering
from simulation.shapes.replicas import LAST_TIERED, THRESHOLDS, begins_late, looks_at_local_logs
from simulation.shapes.shape import TIERED

if TYPE_CHECKING:
    from random import Random

    from metalog.image.values import PartitionImage
    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

AGAIN_S = 0.3
GAPS_MS = (0, 100, 1_000)


def _draw_threshold(rng: Random, _shape: Shape) -> tuple[str, Args]:
    which, key = rng.randrange(100), rng.choice(list(THRESHOLDS))
    cluster, back = rng.random() < 0.5, rng.random() < 0.5
    args: Args = {"key": key, "value": rng.choice(THRESHOLDS[key]), "back": back, "which": which}
    return f"topic {which}", {**args, "cluster": cluster}


async def _threshold(world: RunWorld, event: Event, _rng: Random) -> bool:
    topic = world.operator.topic(event.args["which"])
    if event.args["cluster"]:
        resource = CLUSTER
    elif topic is None:
        return False
    else:
        resource = (ResourceType.TOPIC, topic.name)
    return await set_for_a_while(world, event, resource, event.args["key"])


def _draw_last_tiered(rng: Random, _shape: Shape) -> tuple[str, Args]:
    return "all brokers", {"value": rng.choice(("true", "false"))}


async def _last_tiered(world: RunWorld, event: Event, _rng: Random) -> bool:
    return await set_config(world, CLUSTER, LAST_TIERED, event.args["value"])


def _draw_new(rng: Random, _shape: Shape) -> tuple[str, Args]:
    which = rng.randrange(100)
    args: Args = {"which": which, "other": rng.randrange(100), "gap_ms": rng.choice(GAPS_MS)}
    return f"partition {which}", {**args, "stays": rng.random() < 0.5}


def _tiered(world: RunWorld, which: int) -> tuple[tuple[str, int], PartitionImage] | None:
    """The partition of a tiered topic that a number means now."""
    found = [
        ((topic.name, index), topic.partitions[index])
        for topic in world.operator.topics()
        if world.promises.configs(topic.name).get(TIERED) == "true"
        for index in sorted(topic.partitions)
    ]
    return found[which % len(found)] if found else None


async def _new_replica(world: RunWorld, event: Event, _rng: Random) -> bool:
    """A follower goes with all it has; then it comes back, or another broker takes its place."""
    found = _tiered(world, event.args["which"])
    if found is None:
        return False
    where, one = found
    others = [b.node_id for b in world.brokers if b.node_id not in one.replicas]
    followers = [b for b in one.replicas if b != one.leader]
    if one.adding or one.removing or not (followers or others):
        return False
    ends_s = world.loop.time() + event.for_ms / 1000
    kept, comes = list(one.replicas), 0
    if followers:
        comes = followers[event.args["other"] % len(followers)]
        kept.remove(comes)
        if kept and not await _move(world, where, kept, ends_s):
            return False
        await asyncio.sleep(event.args["gap_ms"] / 1000)
    if others and not (followers and event.args["stays"]):
        comes = others[event.args["other"] % len(others)]
    return await _move(world, where, [*kept, comes], ends_s)


async def _move(
    world: RunWorld, where: tuple[str, int], replicas: list[int], ends_s: float
) -> bool:
    """Whether it was asked for and is over before the end."""
    operator = world.operator
    operator.moving(where, replicas)
    with lowering(world) as allowed:
        if not allowed:
            return False
        code = await operator.insist(lambda: operator.admin.reassign(where, replicas))
    while operator.is_moving(*where) and world.loop.time() < ends_s:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(AGAIN_S)
    return code is ErrorCode.NONE and not operator.is_moving(*where)


KINDS = {
    "local log threshold": OperatorKind(
        "replicas", "leaders must hold more of the log locally, or less", _draw_threshold,
        _threshold, looks_at_local_logs,
    ),
    "last tiered offset": OperatorKind(
        "replicas", "empty followers are to begin behind the tier, or no more", _draw_last_tiered,
        _last_tiered, begins_late,
    ),
    "new replica": OperatorKind(
        "replicas", "a replica of a tiered partition goes, and one with nothing comes", _draw_new,
        _new_replica, lambda shape: begins_late(shape) and len(shape.brokers) > 1,
    ),
}  # fmt: skip
