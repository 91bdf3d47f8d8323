"""Expiry of committed offsets within a run: drawn apart, after the rest of a shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.shapes.shape import ClientShape, Shape, TopicShape

if TYPE_CHECKING:
    from random import Random

CHANCE = 0.25
SETTINGS: dict[str, tuple[str, ...]] = {
    "offsets.retention.minutes": ("1", "1", "10080"),
    "offsets.retention.check.interval.ms": ("300", "1000"),
}
LASTS_MS = (-1, 500, 2_000, 5_000)
"""Retention times of commits; -1: the cluster's retention."""
PAUSES_MS = (50.0, 200.0)


def draw_expiry(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with a short retention of offsets and clients that commit some.

    A cluster whose offsets topic may lose acknowledged records stays as it is.
    """
    late = TopicShape("of groups", 1, 1)
    if rng.random() >= CHANCE or late.allows_unclean(shape.settings):
        return shape
    topics = [one.name for one in shape.topics if not one.compacted]
    own = {key: rng.choice(values) for key, values in SETTINGS.items()}
    clients = [
        ClientShape(
            "brief committer",
            f"brief {number}",
            rng.choice(PAUSES_MS),
            {
                "group": f"brief {number}",
                "topic": rng.choice(topics),
                "lasts_ms": rng.choice(LASTS_MS),
            },
        )
        for number in range(rng.randint(1, 2))
    ]
    clients = [*shape.clients, *clients]
    return replace(shape, settings={**shape.settings, **own}, clients=tuple(clients))
