"""The elections of a shape: eligible leader replicas, and unclean recovery (KIP-966).

Drawn from a stream of its own after all the rest of a shape, which stays as it is. A topic whose
strategy may elect anybody is given up, so that is the last one of a shape that has others. Where
the whole cluster has that strategy, each other topic has its own; nobody may forget that for a
topic that comes later, so then there is no group, whose topic is made by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.shape import AGGRESSIVE, BALANCED, MANAGER, NOBODY, STRATEGY, TIMEOUT, Shape

if TYPE_CHECKING:
    from random import Random

    from simulation.shape import TopicShape

ELR_CHANCE = 0.75
MANAGER_CHANCE = 0.65
TIMEOUTS_MS = ("300", "1500", "6000")
"""How long answers of those that are not needed are waited for; below what clients wait."""


def draw_elections(rng: Random, shape: Shape) -> Shape:
    """The shape, with eligible leader replicas or without."""
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
