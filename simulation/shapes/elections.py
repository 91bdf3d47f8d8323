"""The elections of a shape: eligible leader replicas, and unclean recovery (KIP-966).

Drawn from a stream of its own after the rest of a shape, which stays as it is. A topic with the
strategy Aggressive is in `given_up`, so only the last of several topics gets it. If the whole
cluster has that strategy, every other topic gets another one. A topic that is created later would
inherit it, so then there is no group, whose topic the cluster creates itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.shapes.shape import AGGRESSIVE, BALANCED, MANAGER, NOBODY, STRATEGY, TIMEOUT, Shape

if TYPE_CHECKING:
    from random import Random

    from simulation.shapes.shape import TopicShape

ELR_CHANCE = 0.75
MANAGER_CHANCE = 0.65
TIMEOUTS_MS = ("300", "1500", "6000")
"""Timeouts for log answers that an election does not need; below the timeouts of clients."""


def draw_elections(rng: Random, shape: Shape) -> Shape:
    """Return the shape, with eligible leader replicas or without."""
    if rng.random() >= ELR_CHANCE:
        return shape
    settings = {TIMEOUT: rng.choice(TIMEOUTS_MS)}
    if rng.random() < MANAGER_CHANCE:
        settings[MANAGER] = "true"
    common = rng.choice((None, None, BALANCED, NOBODY, AGGRESSIVE))
    if common == AGGRESSIVE and (shape.has_groups or len(shape.topics) < 2):
        common = None
    if common is not None:
        settings[STRATEGY] = common
    topics = []
    for number, topic in enumerate(shape.topics):
        last = 0 < number == len(shape.topics) - 1
        own = rng.choice((None, None, BALANCED, NOBODY, AGGRESSIVE if last else None))
        if own is None and common == AGGRESSIVE and not last:
            own = BALANCED
        topics.append(topic if own is None else _with_strategy(topic, own))
    return replace(shape, elr=True, topics=tuple(topics), settings={**shape.settings, **settings})


def _with_strategy(topic: TopicShape, strategy: str) -> TopicShape:
    return replace(topic, configs={**topic.configs, STRATEGY: strategy})
