"""Clients of groups that do not wait for responses: drawn apart, after the rest of a shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.shapes.shape import ClientShape, Shape, TopicShape

if TYPE_CHECKING:
    from random import Random

MEMBERS_CHANCE = 0.2
QUITTER_CHANCE = 0.1


def draw_hasty(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with such clients; without them if the offsets topic may lose
    acknowledged records."""
    if TopicShape("of groups", 1, 1).allows_unclean(shape.settings):
        return shape
    clients: list[ClientShape] = []
    if rng.random() < MEMBERS_CHANCE:
        group = {"group": "hasty", "static": False}
        clients += [ClientShape("hasty member", f"hasty {n}", 100.0, group) for n in range(2)]
    if rng.random() < QUITTER_CHANCE:
        clients.append(ClientShape("quitter", "quits", 1_000.0))
    return replace(shape, clients=(*shape.clients, *clients))
