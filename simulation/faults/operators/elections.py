"""Operators and elections: the strategy of unclean recovery, its manager, the feature level, and
elections by the longest log or of a named replica (KIP-966).

Only the last topic of a shape that has others may elect any replica: from then on it is in
`given_up`. Requests that lower the number of survivable losses are not sent while a broker has lost
records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.admin import ResourceType
from client.elections import ElectionType
from metalog.image.features import ELR_VERSION
from metalog.image.values import ConfigResourceType
from protocol.topic_name import REMOTE_LOG_METADATA_TOPIC
from simulation.faults.elections import between, cut, has_elr, leaderless
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.operators.configs import (
    CLUSTER,
    MIN_ISR,
    set_config,
    set_for_a_while,
    set_strategy,
    set_strategy_for_a_while,
)
from simulation.faults.operators.features import UPGRADE, set_level
from simulation.faults.operators.replicas import elect
from simulation.faults.process import lowering, note_silence
from simulation.judges.election_truth import min_isr
from simulation.shapes.drawing import may_give_up
from simulation.shapes.shape import AGGRESSIVE, BALANCED, MANAGER, NOBODY, STRATEGY, TIMEOUT
from simulation.world.links import Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from metalog.image.values import PartitionImage
    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

LAG, LAG_MS = "replica.lag.time.max.ms", 30_000
LATE_MS = (50.0, 200.0, 500.0)
RAISED_MIN, RAISED_MAX = 0.9, 1.4
"""Share of the lag time after which the minimum is raised: a leader checks for lagging followers
every half of that time."""
SAFE_DOWNGRADE = 2
LOOK_S = 0.05
PATIENCE_MS = ("0", "300", "6000")
GROUPS = "__consumer_offsets"
FOR_MS_MIN, FOR_MS_MAX = 1_000, 20_000
PARTITION_TYPES = (
    ElectionType.LONGEST_LOG_BALANCED,
    ElectionType.LONGEST_LOG_BALANCED,
    ElectionType.LONGEST_LOG_AGGRESSIVE,
    ElectionType.DESIGNATION,
)


def _draw_strategy(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw a strategy for all topics, one, or the last one, which alone may elect any replica."""
    place = rng.choice(("cluster", "topic", "last"))
    values = (BALANCED, NOBODY, *((AGGRESSIVE,) if place == "last" else ()))
    args: Args = {
        "value": rng.choice(values),
        "which": rng.randrange(100),
        "back": rng.random() < 0.5 and shape.settings.get(STRATEGY) != AGGRESSIVE,
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }
    names = {"cluster": "the cluster", "topic": f"topic {args['which']}"}
    return names.get(place, f"topic {shape.topics[-1].name}"), args


async def _strategy(world: RunWorld, event: Event, _rng: Random) -> bool:
    operator = world.operator
    if event.target == "the cluster":
        return await set_strategy_for_a_while(world, event, CLUSTER)
    name = event.target.removeprefix("topic ")
    if name.isdecimal():
        topic = operator.topic(int(name))
        if topic is None:
            return False
        name = topic.name
    elif event.args["value"] == AGGRESSIVE:
        if not operator.may_give_up(name):
            return False
        operator.giving_up(name)
    return await set_strategy_for_a_while(world, event, (ResourceType.TOPIC, name))


def _draw_all_aggressive(rng: Random, _shape: Shape) -> tuple[str, Args]:
    return "the cluster", {"for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX)}


async def _all_aggressive(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Set the cluster's strategy to Aggressive for a while; every topic but the last one gets a
    strategy of its own first and keeps it until the end."""
    operator = world.operator
    last = world.shape.topics[-1].name
    if operator.anybody or not operator.may_give_up(last):
        return False
    async with operator.rules:
        own = await _keep_balanced(world, last)
        if own is None:
            return False
        operator.anybody = True
        operator.giving_up(last)
    done = await set_strategy(world, CLUSTER, AGGRESSIVE)
    await asyncio.sleep(event.for_ms / 1000)
    await set_strategy(world, CLUSTER, None)
    operator.anybody = False
    for name in own:
        await set_strategy(world, (ResourceType.TOPIC, name), None)
    return done


async def _keep_balanced(world: RunWorld, last: str) -> list[str] | None:
    """Give every topic but the last a strategy of its own. Returns: the topics that got one.

    None if the offsets topic or the tier's metadata topic may still be created, which the operator
    could not give a strategy in time.
    """
    image = world.promises.metadata.image
    late = {GROUPS} if world.shape.has_groups else set()
    late |= {REMOTE_LOG_METADATA_TOPIC} if world.shape.has_tier else set()
    if not late <= set(image.topics.by_name):
        return None
    got: list[str] = []
    for name in sorted(image.topics.by_name):
        own: Mapping[str, str] = image.configs.get((ConfigResourceType.TOPIC, name), {})
        if name != last and STRATEGY not in own:
            await set_config(world, (ResourceType.TOPIC, name), STRATEGY, BALANCED)
            got.append(name)
    return got


def _draw_patience(rng: Random, _shape: Shape) -> tuple[str, Args]:
    value, back = rng.choice(PATIENCE_MS), rng.random() < 0.5
    return "the cluster", {
        "value": value,
        "back": back,
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }


async def _patience(world: RunWorld, event: Event, _rng: Random) -> bool:
    return await set_for_a_while(world, event, CLUSTER, TIMEOUT)


def _draw_manager(rng: Random, _shape: Shape) -> tuple[str, Args]:
    value = rng.choice(("true", "true", "false"))
    return "the cluster", {
        "value": value,
        "back": rng.random() < 0.5,
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }


async def _manager(world: RunWorld, event: Event, _rng: Random) -> bool:
    return await set_for_a_while(world, event, CLUSTER, MANAGER)


def _draw_level(rng: Random, _shape: Shape) -> tuple[str, Args]:
    return "the cluster", {"for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX)}


async def _level(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Turn the feature off for a while, if no ISR is empty."""
    if not await _set_elr(world, 0, SAFE_DOWNGRADE):
        return False
    await asyncio.sleep(event.for_ms / 1000)
    return await _set_elr(world, 1, UPGRADE)


async def _set_elr(world: RunWorld, level: int, upgrade_type: int) -> bool:
    with lowering(world) as allowed:
        return allowed and await set_level(world, ELR_VERSION, level, upgrade_type)


# --- elections ------------------------------------------------------------------------------------


def _draw_election(rng: Random, _shape: Shape) -> tuple[str, Args]:
    return "a partition", {
        "type": int(rng.choice(PARTITION_TYPES)),
        "which": rng.randrange(100),
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }


async def _election(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Wait until a partition has no leader, and request its election. A topic whose election may
    pick any replica is added to `given_up`."""
    ends_s, which = world.loop.time() + event.for_ms / 1000, event.args["which"]
    while not (found := leaderless(world)):
        if world.loop.time() >= ends_s:
            return False
        await asyncio.sleep(LOOK_S)
    name, index, one = found[which % len(found)]
    kind = ElectionType(event.args["type"])
    if kind is not ElectionType.LONGEST_LOG_BALANCED:
        if not world.operator.may_give_up(name):
            return False
        world.operator.giving_up(name)
    leader = one.replicas[which % len(one.replicas)]
    named = leader if kind is ElectionType.DESIGNATION else None
    return await elect(world, kind, (name, index), named)


# --- a minimum that is raised -------------------------------------------------------------------


def _draw_raise(rng: Random, _shape: Shape) -> tuple[str, Args]:
    which = rng.randrange(100)
    return f"partition {which}", {
        "which": which,
        "late_ms": rng.choice(LATE_MS),
        "for_ms": rng.randint(2 * FOR_MS_MIN, FOR_MS_MAX),
    }


async def _raise(world: RunWorld, event: Event, rng: Random) -> bool:
    """Raise min ISR while the leader is about to shrink the ISR.

    Followers are cut off from their leader, except enough for the present minimum. Just before the
    leader removes them from the ISR, the minimum rises to the former size of the ISR, and the
    leader learns that late.
    """
    found = world.operator.partition(event.args["which"])
    if found is None:
        return False
    name, index, one = found
    lag_ms = world.shape.setting_ms(LAG, LAG_MS)
    leader = next((m for m in world.brokers if m.node_id == one.leader), None)
    others = [m for m in world.brokers if m.node_id in one.isr and m is not leader]
    low = min_isr(world.promises.metadata.image, name)
    if leader is None or leader in world.controllers or not others or low >= len(one.isr):
        return False
    if 2 * lag_ms > event.for_ms:
        return False
    note_silence(world, event.for_ms)
    network, trouble = world.loop.network, Trouble(rng, late_ms=event.args["late_ms"])
    links = [network.link(m.host, leader.host) for m in world.controllers]
    apart = between(world, leader, others[low - 1 :])
    cut(apart, 1)
    await asyncio.sleep(lag_ms * rng.uniform(RAISED_MIN, RAISED_MAX) / 1000)
    network.lay(trouble, links)
    resource = (ResourceType.TOPIC, name)
    done = await set_config(world, resource, MIN_ISR, str(len(one.isr)))
    await asyncio.sleep(lag_ms / 1000)
    cut(apart, -1)
    network.lift(trouble, links)
    await set_config(world, resource, MIN_ISR, None)
    return done and trouble.hits["late"] > 0


def may_elect_anybody(shape: Shape) -> bool:
    """Return whether the strategy of all may become Aggressive. A cluster that has it from the
    start keeps it."""
    return has_elr(shape) and may_give_up(shape) and shape.settings.get(STRATEGY) != AGGRESSIVE


async def rescue(world: RunWorld) -> None:
    """Request elections that the cluster may not hold by itself.

    Elected is the longest log of all replicas that may have every record. If the disk of one of
    these is lost, it is the longest log of the live replicas. If all disks are lost, there is no
    log to compare, and an unclean election begins with an empty one.
    """
    promises = world.promises
    eligible, image = promises.metadata.eligible, promises.metadata.image
    for name, index, one in leaderless(world):
        managed, strategy = eligible.managed(image), eligible.strategy(image, name)
        gone = _without_disk(world, one)
        waits = len(one.last_known_elr) != 1 if not managed else False
        if strategy != NOBODY and not waits and not gone:
            continue
        kind = ElectionType.LONGEST_LOG_BALANCED
        if gone:
            everywhere = gone == {*one.replicas}
            kind = ElectionType.UNCLEAN if everywhere else ElectionType.LONGEST_LOG_AGGRESSIVE
        await elect(world, kind, (name, index))


def _without_disk(world: RunWorld, one: PartitionImage) -> set[int]:
    """Return the replicas whose brokers are back without the disk that has them."""
    brokers = world.promises.metadata.image.cluster.brokers
    return {
        b
        for b in one.replicas
        if b in brokers
        and not brokers[b].fenced
        and one.directory_of(b) not in brokers[b].directories
    }


KINDS = {
    "strategy": OperatorKind(
        "elections",
        "unclean.recovery.strategy changes, of a topic or of all",
        _draw_strategy,
        _strategy,
        has_elr,
    ),
    "strategy of all": OperatorKind(
        "elections",
        "the strategy of all topics is Aggressive for a while, of those that give nothing up not",
        _draw_all_aggressive,
        _all_aggressive,
        may_elect_anybody,
    ),
    "patience": OperatorKind(
        "elections",
        "unclean.recovery.timeout.ms changes",
        _draw_patience,
        _patience,
        has_elr,
    ),
    "recovery manager": OperatorKind(
        "elections", "unclean recovery is turned on or off", _draw_manager, _manager, has_elr
    ),
    "elr level": OperatorKind(
        "elections",
        "the feature of eligible replicas is off for a while",
        _draw_level,
        _level,
        has_elr,
    ),
    "raised minimum": OperatorKind(
        "elections",
        "min.insync.replicas rises while followers leave the ISR, and the leader hears late of it",
        _draw_raise,
        _raise,
        has_elr,
    ),
    "longest log": OperatorKind(
        "elections",
        "where nobody leads, somebody is to lead by the longest log, or by name",
        _draw_election,
        _election,
        has_elr,
    ),
}
