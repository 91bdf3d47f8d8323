"""Operators and topics: created, grown, deleted, and created again under the same name.

A run keeps at least one topic that is not in `given_up`: writes must succeed in the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.admin import NewTopic
from protocol.errors import ErrorCode
from simulation.faults.kind import Args, OperatorKind
from simulation.shapes.drawing import SEGMENT_BYTES
from simulation.shapes.shape import AGGRESSIVE, BALANCED, FACTOR_MAX, PARTITIONS_MAX, STRATEGY

if TYPE_CHECKING:
    from random import Random

    from metalog.image.values import TopicImage
    from simulation.event import Event
    from simulation.operator import Operator
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
GONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
TOPICS_MAX = 6


def _draw_new(rng: Random, shape: Shape) -> Args:
    factor = rng.randint(1, min(FACTOR_MAX, len(shape.brokers)))
    configs = {"min.insync.replicas": str(rng.randint(1, factor))}
    if rng.random() < 0.5:
        configs["internal.segment.bytes"] = rng.choice(SEGMENT_BYTES)
    if shape.settings.get(STRATEGY) == AGGRESSIVE:
        # without it the topic could elect any replica as soon as it is created
        configs[STRATEGY] = BALANCED
    return {"partitions": rng.randint(1, 2), "factor": factor, "configs": configs}


def _draw_create(rng: Random, shape: Shape) -> tuple[str, Args]:
    return f"new-{rng.randrange(10**6)}", _draw_new(rng, shape)


def draw_which(rng: Random, _shape: Shape) -> tuple[str, Args]:
    which = rng.randrange(100)
    return f"topic {which}", {"which": which}


def _draw_again(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = draw_which(rng, shape)
    return target, {**args, **_draw_new(rng, shape), "gap_ms": rng.choice([0, 0, 100, 1000])}


async def make(operator: Operator, name: str, args: Args) -> bool:
    """Create a topic. Returns: whether it exists."""
    async with operator.rules:
        own = {STRATEGY: BALANCED} if operator.anybody else {}
        topic = NewTopic(name, args["partitions"], args["factor"], {**own, **args["configs"]})
        code = await operator.insist(lambda: operator.admin.create_topics([topic]))
    operator.look()
    return code in MADE


async def _delete(operator: Operator, topic: TopicImage) -> bool:
    operator.deleting(topic)
    return await operator.insist(lambda: operator.admin.delete_topic(topic.name)) in GONE


def _may_go(world: RunWorld, which: int) -> TopicImage | None:
    """Return a topic that may be deleted: not the last one with promises, and not one whose
    deletion another event is about to request. None if there is no such topic."""
    kept = [one for one in world.operator.topics() if world.operator.relies_on(one)]
    topic = kept[which % len(kept)] if kept else None
    others = {one.name for one in kept if one is not topic} - world.promises.given_up
    return topic if others else None


async def _create(world: RunWorld, event: Event, _rng: Random) -> bool:
    if len(world.operator.topics()) >= TOPICS_MAX:
        return False
    return await make(world.operator, event.target, event.args)


async def _remove(world: RunWorld, event: Event, _rng: Random) -> bool:
    topic = _may_go(world, event.args["which"])
    return topic is not None and await _delete(world.operator, topic)


async def made_again(world: RunWorld, event: Event, _rng: Random) -> bool:
    topic = _may_go(world, event.args["which"])
    if topic is None or not await _delete(world.operator, topic):
        return False
    await asyncio.sleep(event.args["gap_ms"] / 1000)
    return await make(world.operator, topic.name, event.args)


async def _grow(world: RunWorld, event: Event, _rng: Random) -> bool:
    operator = world.operator
    topic = operator.topic(event.args["which"])
    if topic is None or len(topic.partitions) >= PARTITIONS_MAX:
        return False
    count = len(topic.partitions) + 1
    code = await operator.insist(lambda: operator.admin.create_partitions(topic.name, count))
    operator.look()
    return code is ErrorCode.NONE


KINDS = {
    "create topic": OperatorKind("operators", "a topic is made", _draw_create, _create),
    "delete topic": OperatorKind("operators", "a topic is deleted", draw_which, _remove),
    "topic again": OperatorKind(
        "operators", "a topic is deleted and made again under its name", _draw_again, made_again
    ),
    "grow topic": OperatorKind("operators", "a topic gets one more partition", draw_which, _grow),
}
