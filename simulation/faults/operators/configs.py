"""Operators and configurations that change the behaviour of running brokers and controllers.

`min.insync.replicas` goes up and down, for a topic or for the cluster. Unclean elections are
allowed for one topic alone, the last of a shape that has others.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from client.admin import ConfigChange, ConfigOperation, ResourceType
from protocol.errors import ErrorCode
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.process import lowering
from simulation.shapes.drawing import RETENTION, SEGMENT_BYTES, may_give_up
from simulation.shapes.shape import BALANCED, FACTOR_MAX, MANAGER, STRATEGY, UNCLEAN

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

Resource = tuple[ResourceType, str]
CLUSTER: Resource = (ResourceType.BROKER, "")
MIN_ISR = "min.insync.replicas"
LOWERING = (MIN_ISR, MANAGER)
"""Keys that set how many losses are survived."""


def _draw_value(rng: Random, values: tuple[str, ...]) -> tuple[str, Args]:
    which = rng.randrange(100)
    back = rng.random() < 0.5
    return f"topic {which}", {"which": which, "value": rng.choice(values), "back": back}


def _draw_min_isr(rng: Random, _shape: Shape) -> tuple[str, Args]:
    target, args = _draw_value(rng, tuple(str(one) for one in range(1, FACTOR_MAX + 1)))
    return target, {**args, "cluster": rng.random() < 0.3}


def _draw_segment(rng: Random, _shape: Shape) -> tuple[str, Args]:
    return _draw_value(rng, SEGMENT_BYTES)


def _draw_retention(rng: Random, _shape: Shape) -> tuple[str, Args]:
    target, args = _draw_value(rng, RETENTION)
    return target, {**args, "key": rng.choice(("retention.ms", "retention.bytes"))}


def _draw_unclean(_rng: Random, shape: Shape) -> tuple[str, Args]:
    return f"topic {shape.topics[-1].name}", {}


async def set_config(world: RunWorld, resource: Resource, key: str, value: str | None) -> bool:
    operator = world.operator
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    change = ConfigChange(key, operation, value)
    with lowering(world) if key in LOWERING else contextlib.nullcontext(True) as allowed:
        if not allowed:
            return False
        code = await operator.insist(lambda: operator.admin.alter_configs(*resource, [change]))
    return code is ErrorCode.NONE


async def set_for_a_while(world: RunWorld, event: Event, resource: Resource, key: str) -> bool:
    """Set the value of `event.args`, and perhaps remove it when the event is over."""
    done = await set_config(world, resource, key, event.args["value"])
    if done and event.args["back"]:
        await asyncio.sleep(event.for_ms / 1000)
        # With eligible leader replicas the cluster's min ISR may change but not be removed; 1 is
        # the default.
        last = (resource, key) == (CLUSTER, MIN_ISR)
        await set_config(world, resource, key, "1" if last else None)
    return done


async def set_strategy(world: RunWorld, resource: Resource, value: str | None) -> bool:
    """Set a strategy, or with None remove it, unless the topic could then elect any replica."""
    async with world.operator.rules:
        if value is None and resource != CLUSTER:
            # The older key for Aggressive; a strategy of the topic takes precedence.
            flag = world.promises.configs(resource[1]).get(UNCLEAN)
            if world.operator.anybody or flag == "true":
                value = BALANCED
        return await set_config(world, resource, STRATEGY, value)


async def set_strategy_for_a_while(world: RunWorld, event: Event, resource: Resource) -> bool:
    """Set the strategy of `event.args`, and perhaps remove it when the event is over."""
    done = await set_strategy(world, resource, event.args["value"])
    if done and event.args["back"]:
        await asyncio.sleep(event.for_ms / 1000)
        await set_strategy(world, resource, None)
    return done


async def _of_topic(world: RunWorld, event: Event, key: str) -> bool:
    topic = world.operator.topic(event.args["which"])
    if topic is None:
        return False
    return await set_for_a_while(world, event, (ResourceType.TOPIC, topic.name), key)


async def _min_isr(world: RunWorld, event: Event, _rng: Random) -> bool:
    if event.args["cluster"]:
        return await set_for_a_while(world, event, CLUSTER, MIN_ISR)
    return await _of_topic(world, event, MIN_ISR)


async def _segment(world: RunWorld, event: Event, _rng: Random) -> bool:
    return await _of_topic(world, event, "internal.segment.bytes")


async def _retention(world: RunWorld, event: Event, _rng: Random) -> bool:
    operator = world.operator
    topic = operator.topic(event.args["which"])
    if topic is None:
        return False
    operator.letting_go(topic.name)
    resource = (ResourceType.TOPIC, topic.name)
    return await set_for_a_while(world, event, resource, event.args["key"])


async def _unclean(world: RunWorld, event: Event, _rng: Random) -> bool:
    name = event.target.removeprefix("topic ")
    if not world.operator.may_give_up(name):
        return False
    world.operator.giving_up(name)
    resource, key = (ResourceType.TOPIC, name), UNCLEAN
    return await set_config(world, resource, key, "true")


KINDS = {
    "min isr": OperatorKind(
        "operators", "min.insync.replicas changes, of a topic or of all", _draw_min_isr, _min_isr
    ),
    "segment size": OperatorKind(
        "operators", "the size of a topic's segments changes", _draw_segment, _segment
    ),
    "retention": OperatorKind(
        "operators", "a topic keeps its records for less long", _draw_retention, _retention
    ),
    "unclean allowed": OperatorKind(
        "operators", "one topic may elect uncleanly", _draw_unclean, _unclean, may_give_up
    ),
}
