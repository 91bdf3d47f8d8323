"""New replicas and local logs of a shape: followers that begin behind all copies in the tier
(KIP-1023), and leaders with enough of the log on local disks (KIP-1303).

Drawn from a stream of its own after the rest of a shape: a seed that gets none of these keys stays
as it is. Other code detects the keys in the shape's settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.shapes.shape import LOCAL_BYTES, LOCAL_MS

if TYPE_CHECKING:
    from random import Random

    from simulation.shapes.shape import Shape, TopicShape

LAST_TIERED = "follower.fetch.last.tiered.offset.enable"
INTERVAL = "kraftbox.local.log.report.interval.ms"
SELECTOR = "kraftbox.replica.selector.local.log.enable"

WITH_TIER_CHANCE = 0.5
WITHOUT_CHANCE = 0.1
LOCAL_LOGS_CHANCE = 0.75
OWN_CHANCE = 0.4
"""Share of topics with thresholds of their own."""
THRESHOLDS: dict[str, tuple[str, ...]] = {
    LOCAL_MS: ("1", "500", "3000", "20000", "0", "-1"),
    LOCAL_BYTES: ("1", "2000", "6000", "30000", "0", "-1"),
}
INTERVALS_MS = ("100", "500", "3000")


def begins_late(shape: Shape) -> bool:
    """Return whether the cluster's empty replicas may begin behind the tier, now or after an
    operator's change."""
    return LAST_TIERED in shape.settings


def looks_at_local_logs(shape: Shape) -> bool:
    """Return whether the cluster may request local-log stats, now or after an operator's change."""
    return INTERVAL in shape.settings


def draw_replicas(rng: Random, shape: Shape) -> Shape:
    """Return the shape, with these keys or without."""
    tiered = shape.has_tier
    if rng.random() >= (WITH_TIER_CHANCE if tiered else WITHOUT_CHANCE):
        return shape
    settings = {LAST_TIERED: rng.choice(("true", "true", "false"))} if tiered else {}
    if tiered and rng.random() >= LOCAL_LOGS_CHANCE:
        return replace(shape, settings={**shape.settings, **settings})
    settings[INTERVAL] = rng.choice(INTERVALS_MS)
    settings[SELECTOR] = rng.choice(("true", "false"))
    settings |= draw_thresholds(rng)
    topics = tuple(
        _with_own(rng, one) if rng.random() < OWN_CHANCE else one for one in shape.topics
    )
    return replace(shape, topics=topics, settings={**shape.settings, **settings})


def draw_thresholds(rng: Random) -> dict[str, str]:
    """Return one threshold, both, or neither."""
    return {key: rng.choice(values) for key, values in THRESHOLDS.items() if rng.random() < 0.6}


def _with_own(rng: Random, topic: TopicShape) -> TopicShape:
    return replace(topic, configs={**topic.configs, **draw_thresholds(rng)})
