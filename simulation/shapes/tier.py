"""The tier of a shape: nodes with tiered storage (KIP-405), and topics that are tiered.

Drawn from a stream of its own after the rest of a shape; without a tier the rest stays as it is.
Brokers create the metadata topic themselves, without an unclean recovery strategy of its own. So
the strategy of a cluster with a tier is never Aggressive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.shapes.shape import (
    AGGRESSIVE,
    BALANCED,
    FACTOR_MAX,
    STRATEGY,
    TIERED,
    TIERED_SYSTEM,
    ClientShape,
    Shape,
    TopicShape,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

TIER_CHANCE = 0.2
TOPIC_CHANCE = 0.75
SHRINKING_CHANCE = 0.4
METADATA = "rlmm.config.remote.log.metadata."
FIXED = {
    TIERED_SYSTEM: "true",
    "rsm.config.url": "s3://bucket/prefix",
}
# Runs last seconds, so intervals of half a minute in production are shorter here.
SETTINGS: dict[str, tuple[str, ...]] = {
    "log.retention.check.interval.ms": ("300", "1000"),
    "remote.log.manager.task.interval.ms": ("200", "500", "1500"),
    "remote.log.manager.task.retry.backoff.ms": ("100", "500"),
    "remote.log.manager.task.retry.backoff.max.ms": ("1000", "3000"),
    "remote.fetch.max.wait.ms": ("50", "500"),
    "remote.log.reader.max.pending.tasks": ("1", "100"),
    "remote.log.index.file.cache.total.size.bytes": ("1", "100000"),
    f"{METADATA}topic.num.partitions": ("1", "2", "3"),
    f"{METADATA}consume.wait.ms": ("1000", "3000", "10000"),
}
LOCAL: dict[str, tuple[str, ...]] = {
    "local.retention.bytes": ("1", "1", "4000"),
    "local.retention.ms": ("1", "2000"),
}
TOTAL: dict[str, tuple[str, ...]] = {
    "retention.bytes": ("4000", "12000", "30000"),
    "retention.ms": ("4000", "15000"),
}
COPY_LAG_MS = "remote.copy.lag.ms"
FOLLOWS_LOCAL = "-1"
"""The copy lag that equals the local retention: valid whatever an operator sets there. That in
bytes follows by default."""
LAG_CHANCE = 0.4
PAUSES_MS = (100.0, 300.0, 1_000.0)
LISTER_PAUSE_MS = 300.0
AGAIN = 0.2
"""Share of the steps at which a consumer begins again."""
SMALL = ("2048", "2048", "4096")


def draw_tier(rng: Random, shape: Shape, wanted: bool | None = None) -> Shape:
    """Return the shape, with a tier or without; `wanted` decides; None: one in five has one."""
    drawn = rng.random() < TIER_CHANCE
    if not (drawn if wanted is None else wanted):
        return shape
    settings = {**FIXED, **{key: rng.choice(values) for key, values in SETTINGS.items()}}
    factor = rng.randint(1, min(FACTOR_MAX, len(shape.brokers)))
    if rng.random() < 0.7:
        factor = min(FACTOR_MAX, len(shape.brokers))
    settings[f"{METADATA}topic.replication.factor"] = str(factor)
    settings[f"{METADATA}topic.min.isr"] = str(rng.randint(1, min(2, factor)))
    if shape.settings.get(STRATEGY) == AGGRESSIVE:
        settings[STRATEGY] = BALANCED
    plain = [number for number, one in enumerate(shape.topics) if not one.compacted]
    chosen = {number for number in plain if rng.random() < TOPIC_CHANCE} or {plain[0]}
    topics = tuple(
        _tiered(rng, one, may_shrink=number != plain[0]) if number in chosen else one
        for number, one in enumerate(shape.topics)
    )
    clients = (*shape.clients, *rereaders(topics, rng.choice(PAUSES_MS)))
    return replace(shape, topics=topics, settings={**shape.settings, **settings}, clients=clients)


def draw_copy_lag(rng: Random, shape: Shape) -> Shape:
    """Return the shape; the copies of some of its tiered topics wait for the lag of KIP-1241."""
    topics = tuple(
        replace(one, configs={**one.configs, COPY_LAG_MS: FOLLOWS_LOCAL})
        if one.tiered and rng.random() < LAG_CHANCE
        else one
        for one in shape.topics
    )
    return replace(shape, topics=topics)


def rereaders(topics: Iterable[TopicShape], pause_ms: float) -> Iterator[ClientShape]:
    """Yield consumers of tiered topics that often begin again at offsets that only the tier has,
    and a client that lists all offsets."""
    yield ClientShape("tier lister", "tier lister", LISTER_PAUSE_MS)
    for one in topics:
        if one.tiered:
            args = {"topic": one.name, "partition": 0, "again": AGAIN}
            yield ClientShape("consumer", f"from the start of {one.name}", pause_ms, args)


def tiered_configs(rng: Random) -> dict[str, str]:
    """Return the configuration of a topic that keeps every record, mostly in the tier alone."""
    key = rng.choice(list(LOCAL))
    return {
        TIERED: "true",
        "internal.segment.bytes": rng.choice(SMALL),
        key: rng.choice(LOCAL[key]),
    }


def _tiered(rng: Random, topic: TopicShape, *, may_shrink: bool) -> TopicShape:
    """Return the topic with a tier; its local limits are below those of the whole log."""
    configs = {**topic.configs, **tiered_configs(rng)}
    if may_shrink and not topic.shrinks and rng.random() < SHRINKING_CHANCE:
        key = rng.choice(list(TOTAL))
        configs[key] = rng.choice(TOTAL[key])
    for key in TOTAL:
        if key in configs and f"local.{key}" in configs:
            configs[f"local.{key}"] = "1"
    return replace(topic, configs=configs)
