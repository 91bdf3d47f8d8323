"""Operators and tiered topics (KIP-405, KIP-950): records are deleted, copies are switched off and
on, tiering is switched off with all it has and on again, local limits change, and a tiered topic is
made again under its name.

What old records go is told before it is asked for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.admin import ConfigChange, ConfigOperation, ResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.operators.topics import draw_which, made_again
from simulation.operator import REQUEST_MS
from simulation.shapes.shape import FACTOR_MAX, TIERED
from simulation.shapes.tier import LOCAL, tiered_configs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from metalog.image.values import TopicImage
    from simulation.event import Event
    from simulation.operator import Operator
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

COPY_DISABLE, DELETE_ON_DISABLE = "remote.log.copy.disable", "remote.log.delete.on.disable"
FOLLOW_TOTAL = "-2"
AGAIN_S = 0.3


def _has_tier(shape: Shape) -> bool:
    return shape.has_tier


def _draw_records(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = draw_which(rng, shape)
    return target, {**args, "part": round(rng.random(), 2)}


def _draw_local(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = draw_which(rng, shape)
    key = rng.choice(list(LOCAL))
    return target, {**args, "key": key, "value": rng.choice((*LOCAL[key], FOLLOW_TOTAL))}


def _draw_again(rng: Random, shape: Shape) -> tuple[str, Args]:
    target, args = draw_which(rng, shape)
    factor = rng.randint(1, min(FACTOR_MAX, len(shape.brokers)))
    configs = {**tiered_configs(rng), "min.insync.replicas": str(rng.randint(1, factor))}
    made: Args = {"partitions": rng.randint(1, 2), "factor": factor, "configs": configs}
    return target, {**args, **made, "gap_ms": rng.choice((0, 0, 100, 1000))}


def tiered_topic(world: RunWorld, which: int) -> TopicImage | None:
    """The tiered topic that a number means now."""
    topics, promises = world.operator.topics(), world.promises
    found = [one for one in topics if promises.configs(one.name).get(TIERED) == "true"]
    return found[which % len(found)] if found else None


async def _set(world: RunWorld, topic: str, values: Mapping[str, str | None]) -> bool:
    """All of them at once."""
    operator = world.operator
    changes = [
        ConfigChange(key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
        for key, value in values.items()
    ]
    code = await operator.insist(
        lambda: operator.admin.alter_configs(ResourceType.TOPIC, topic, changes)
    )
    return code is ErrorCode.NONE


async def _delete_records(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Of each partition a part of what is committed. Nobody insists: there may be no leader until
    an operator asks for one, when all is quiet."""
    topic, operator = tiered_topic(world, event.args["which"]), world.operator
    if topic is None:
        return False
    operator.letting_go(topic.name)
    done = False
    until_s = world.loop.time() + event.for_ms / 1000
    for index in sorted(topic.partitions):
        truth = world.promises.partitions.get((topic.id, index))
        before = 0 if truth is None else int(truth.end * event.args["part"])
        while before:
            try:
                await delete_below(operator, topic, index, before)
                done = True
                break
            except (ApiError, OSError):
                if world.loop.time() >= until_s:
                    break
                await asyncio.sleep(AGAIN_S)
    return done


async def delete_below(operator: Operator, topic: TopicImage, index: int, before: int) -> None:
    """Once. Raises ApiError, OSError."""
    told = (await operator.cluster.metadata([topic.name], REQUEST_MS)).topics[0]
    leader = operator.cluster.cache.leaders.get((topic.name, index))
    if told.error_code or told.topic_id != topic.id or leader is None or leader.node_id < 0:
        raise ApiError(ErrorCode(told.error_code or ErrorCode.LEADER_NOT_AVAILABLE))
    one = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=before)
    named = DeleteRecordsRequest.DeleteRecordsTopic(name=topic.name, partitions=[one])
    request = DeleteRecordsRequest(topics=[named], timeout_ms=REQUEST_MS)
    answer = await operator.cluster.request_broker(leader.node_id, request, REQUEST_MS)
    code = answer.topics[0].partitions[0].error_code
    if code:
        raise ApiError(ErrorCode(code))


async def _copies_off(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Local limits may not differ from those for all meanwhile."""
    topic = tiered_topic(world, event.args["which"])
    if topic is None:
        return False
    before = {key: world.promises.configs(topic.name).get(key) for key in LOCAL}
    off = {COPY_DISABLE: "true", **dict.fromkeys(LOCAL, FOLLOW_TOTAL)}
    if not await _set(world, topic.name, off):
        return False
    await asyncio.sleep(event.for_ms / 1000)
    await _set(world, topic.name, {COPY_DISABLE: "false", **before})
    return True


async def _tiering_off(world: RunWorld, event: Event, _rng: Random) -> bool:
    topic = tiered_topic(world, event.args["which"])
    if topic is None:
        return False
    world.operator.letting_go(topic.name)
    if not await _set(world, topic.name, {TIERED: "false", DELETE_ON_DISABLE: "true"}):
        return False
    await asyncio.sleep(event.for_ms / 1000)
    await _set(world, topic.name, {TIERED: "true", DELETE_ON_DISABLE: "false"})
    return True


async def _local(world: RunWorld, event: Event, _rng: Random) -> bool:
    topic = tiered_topic(world, event.args["which"])
    if topic is None:
        return False
    return await _set(world, topic.name, {event.args["key"]: event.args["value"]})


KINDS = {
    "delete records": OperatorKind(
        "tiering", "the oldest records of a tiered topic are deleted", _draw_records,
        _delete_records, _has_tier,
    ),
    "copies off": OperatorKind(
        "tiering", "a tiered topic is read only in its tier for a while", draw_which,
        _copies_off, _has_tier,
    ),
    "tiering off": OperatorKind(
        "tiering", "a topic's tier is given up with all it has, and is there again later",
        draw_which, _tiering_off, _has_tier,
    ),
    "local retention": OperatorKind(
        "tiering", "a tiered topic keeps more or less on the disk", _draw_local, _local, _has_tier
    ),
    "tiered again": OperatorKind(
        "tiering", "a topic is deleted and made again under its name, tiered", _draw_again,
        made_again, _has_tier,
    ),
}  # fmt: skip
