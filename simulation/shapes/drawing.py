"""The draw of a shape: nodes, topics, settings, clients and faults of a seed.

Each part that was added later is drawn from a random stream of its own, so that seeds keep the
rest. The other files of this room draw the parts of one subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metalog.image.features import ELR_LEVEL
from simulation.chance import stream
from simulation.shapes.shape import (
    BROKER,
    CONTROLLER,
    FACTOR_MAX,
    KRAFT_LEVEL,
    LEVELS,
    NODES_MAX,
    UNCLEAN,
    WEIGHT_MAX,
    ClientShape,
    DiskShape,
    LinkShape,
    NodeShape,
    Shape,
    TopicShape,
)

if TYPE_CHECKING:
    from random import Random

LINKS = {
    "one rack": LinkShape(0.05, 0.5),
    "one building": LinkShape(0.2, 2.0),
    "busy": LinkShape(0.1, 1.0, 0.02, 60.0),
    "two cities": LinkShape(4.0, 12.0),
    "far": LinkShape(15.0, 45.0, 0.01, 150.0),
    "uneven": LinkShape(0.3, 100.0, tail=1.0),
    "far and uneven": LinkShape(10.0, 80.0, tail=1.2),
}
AWAY = ("two cities", "far", "far and uneven")
"""Links for one node that is away from the others."""
DISKS = {
    "fast": DiskShape(0.02, 0.3, 0.1),
    "ordinary": DiskShape(0.05, 5.0, 1.0),
    "slow": DiskShape(2.0, 60.0, 10.0),
}
RACKS = ("a", "b", "c")

# Each key is drawn separately; a key that is left out keeps the product's default. The clients of a
# run judge within seconds, so timeouts are shorter than in production.
SETTINGS: dict[str, tuple[str, ...]] = {
    "broker.session.timeout.ms": ("1500", "3000", "6000"),
    "broker.heartbeat.interval.ms": ("200", "500"),
    # More than two rounds of a fetch that waits 500 ms on links whose messages may be late.
    "replica.lag.time.max.ms": ("1500", "2000", "6000"),
    "replica.fetch.wait.max.ms": ("50", "200", "500"),
    "replica.high.watermark.checkpoint.interval.ms": ("500", "1000", "5000"),
    "controller.quorum.fetch.timeout.ms": ("1000", "2000", "4000"),
    "controller.quorum.election.timeout.ms": ("500", "1000"),
    "controller.quorum.append.linger.ms": ("0", "25"),
    "kraftbox.broker.connection.loss.fence.ms": ("0", "100", "1000"),
}
LOOSE_SETTINGS: dict[str, tuple[str, ...]] = {
    # A follower whose connection was lost silently waits this long.
    "replica.socket.timeout.ms": ("2000", "5000"),
    "num.replica.fetchers": ("1", "2", "3"),
    "max.incremental.fetch.session.cache.slots": ("0", "1", "1000"),
    "metadata.log.max.record.bytes.between.snapshots": ("500", "2000", "20000"),
    "log.flush.interval.messages": ("1", "10", "100"),
    "log.flush.offset.checkpoint.interval.ms": ("1000", "10000"),
    "auto.leader.rebalance.enable": ("true", "false"),
    "leader.imbalance.check.interval.seconds": ("3", "20"),
    "log.cleaner.enable": ("true", "false"),
    "log.retention.check.interval.ms": ("500", "2000"),
    "log.segment.delete.delay.ms": ("0", "1000"),
    "replica.fetch.max.bytes": ("1000", "100000"),
    "replica.fetch.response.max.bytes": ("1000", "100000"),
}
OWN_SETTINGS = ("replica.lag.time.max.ms", "num.replica.fetchers", "replica.fetch.wait.max.ms")
"""Keys that may differ from node to node."""
OLD_LEVEL_CHANCE = 0.3
KRAFT_CHANCE = 0.35
RETENTION = ("1", "3000", "30000")
"""Milliseconds, or bytes."""
SEGMENT_BYTES = ("2048", "8192", "65536")
"""More than the largest batch of any client."""


COMPACTED = "k0"
# The configuration of a compacted topic, and of its cleaner, so that it cleans within seconds.
COMPACTED_CONFIGS: dict[str, tuple[str, ...]] = {
    "internal.segment.bytes": ("2048", "2048", "8192"),
    "min.cleanable.dirty.ratio": ("0", "0.01", "0.5"),
    "delete.retention.ms": ("0", "500", "5000", "60000"),
    "min.compaction.lag.ms": ("0", "0", "2000"),
    "segment.ms": ("2000", "10000", "60000"),
}
CLEANER_SETTINGS: dict[str, tuple[str, ...]] = {
    "log.cleaner.backoff.ms": ("100", "500", "2000"),
    "log.cleaner.io.max.bytes.per.second": ("2000", "100000"),
    "log.cleaner.min.cleanable.ratio": ("0.01", "0.5"),
    # Offsets of groups are cleaned, too: their segments cannot be small.
    "log.roll.ms": ("2000", "100000"),
}


def may_give_up(shape: Shape) -> bool:
    """Return whether the last topic may waive its promises, since another topic keeps them."""
    return any(one.name not in shape.given_up for one in shape.topics[:-1])


def draw_shape(seed: int, fault_kinds: Mapping[str, Any], client_kinds: Mapping[str, Any]) -> Shape:
    """Draw the shape of a seed.

    `fault_kinds` and `client_kinds` are the registries: a fault kind has `possible(shape)`, a
    client kind draws `clients(rng, topics)`. Kinds that are drawn apart are left to `draw_apart`,
    so that a new one changes nothing of a seed.
    """
    rng = stream(seed, "shape")
    nodes = _draw_nodes(rng)
    settings = {key: rng.choice(values) for key, values in SETTINGS.items()}
    for key, values in LOOSE_SETTINGS.items():
        if rng.random() < 0.4:
            settings[key] = rng.choice(values)
    topics = _draw_topics(rng, sum(one.serves for one in nodes))
    bare = Shape(
        nodes=nodes,
        topics=topics,
        settings=settings,
        link=LINKS[rng.choice(list(LINKS))],
        disk=DISKS[rng.choice(list(DISKS))],
        clients=_draw_clients(rng, topics, client_kinds),
        faults={},
    )
    return replace(bare, faults=draw_faults(rng, bare, fault_kinds))


def draw_apart(seed: int, shape: Shape, client_kinds: Mapping[str, Any]) -> Shape:
    """Return the shape, perhaps with a compacted topic, and with clients that are drawn apart, all
    from streams of their own."""
    whole = _with_compacted(stream(seed, "shape", "compacted"), shape)
    return replace(whole, clients=(*whole.clients, *_draw_apart(seed, whole, client_kinds)))


def draw_level(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with an older metadata level than the newest one."""
    if rng.random() >= OLD_LEVEL_CHANCE:
        return shape
    low = ELR_LEVEL if shape.elr else LEVELS.min_level
    return replace(shape, metadata_version=rng.randint(low, LEVELS.max_level))


def draw_kraft_version(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with voters in the metadata log."""
    old = shape.metadata_version is not None and shape.metadata_version < KRAFT_LEVEL
    if rng.random() >= KRAFT_CHANCE or old:
        return shape
    return replace(shape, kraft_version=1)


def draw_faults(rng: Random, shape: Shape, kinds: Mapping[str, Any]) -> dict[str, int]:
    """Return some of the possible kinds with weights; at least one if any is possible."""
    possible = [name for name, kind in kinds.items() if kind.possible(shape)]
    chosen = [name for name in possible if rng.random() < 0.5]
    if possible and not chosen:
        chosen = [rng.choice(possible)]
    return {name: rng.randint(1, WEIGHT_MAX) for name in chosen}


def _with_compacted(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with a compacted topic in front."""
    if rng.random() < 0.6:
        return shape
    factor = rng.randint(1, min(FACTOR_MAX, len(shape.brokers)))
    configs = {key: rng.choice(values) for key, values in COMPACTED_CONFIGS.items()}
    configs |= {"cleanup.policy": "compact", "min.insync.replicas": str(rng.randint(1, factor))}
    topic = TopicShape(COMPACTED, rng.randint(1, 2), factor, configs)
    settings = {k: rng.choice(values) for k, values in CLEANER_SETTINGS.items()}
    return replace(shape, topics=(topic, *shape.topics), settings={**settings, **shape.settings})


def _draw_nodes(rng: Random) -> tuple[NodeShape, ...]:
    both: tuple[str, ...] = (CONTROLLER, BROKER)
    controls: tuple[str, ...] = (CONTROLLER,)
    serves: tuple[str, ...] = (BROKER,)
    count = rng.choices(range(1, NODES_MAX + 1), [2, 2, 6, 1, 1])[0]
    layout = rng.choice(["separate", "separate", "combined", "mixed"])
    if layout == "combined":
        roles = [both] * count
    else:
        brokers = rng.choices(range(1, NODES_MAX + 1), [2, 2, 6, 2, 1])[0]
        shared = rng.randint(1, min(count, brokers)) if layout == "mixed" else 0
        roles = [controls] * (count - shared) + [both] * shared + [serves] * (brokers - shared)
    racks = rng.random() < 0.3
    away = rng.randint(1, len(roles)) if rng.random() < 0.25 else 0
    return tuple(
        NodeShape(
            number,
            one,
            RACKS[number % len(RACKS)] if racks and BROKER in one else None,
            _draw_own(rng),
            LINKS[rng.choice(AWAY)] if number == away else None,
        )
        for number, one in enumerate(roles, 1)
    )


def _draw_own(rng: Random) -> dict[str, str]:
    if rng.random() < 0.8:
        return {}
    key = rng.choice(OWN_SETTINGS)
    return {key: rng.choice((SETTINGS | LOOSE_SETTINGS)[key])}


def _draw_topics(rng: Random, brokers: int) -> tuple[TopicShape, ...]:
    topics = []
    for number in range(rng.randint(1, 3)):
        factor = rng.randint(1, min(FACTOR_MAX, brokers))
        if rng.random() < 0.6:
            factor = min(FACTOR_MAX, brokers)
        configs = {"min.insync.replicas": str(rng.randint(1, factor))}
        if rng.random() < 0.6:
            configs["internal.segment.bytes"] = rng.choice(SEGMENT_BYTES)
        if number and rng.random() < 0.15:
            configs[rng.choice(("retention.ms", "retention.bytes"))] = rng.choice(RETENTION)
        if rng.random() < 0.25:
            configs["flush.messages"] = rng.choice(("1", "1", "20"))
        if factor > 1 and rng.random() < 0.1:
            configs[UNCLEAN] = "true"
        topics.append(TopicShape(f"t{number}", rng.randint(1, 2), factor, configs))
    return tuple(topics)


def _draw_clients(
    rng: Random, topics: tuple[TopicShape, ...], kinds: Mapping[str, Any]
) -> tuple[ClientShape, ...]:
    found: list[ClientShape] = []
    for kind in kinds.values():
        found += [] if kind.apart else kind.clients(rng, topics)
    return tuple(found)


def _draw_apart(seed: int, shape: Shape, kinds: Mapping[str, Any]) -> list[ClientShape]:
    """Return the clients that are drawn from streams of their own."""
    found: list[ClientShape] = []
    for name, kind in kinds.items():
        if kind.apart:
            found += kind.clients(stream(seed, "shape", "client", name), shape.topics)
    return found
