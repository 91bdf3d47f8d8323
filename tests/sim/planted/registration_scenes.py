"""Scenes in which brokers register: after an unclean end that the controllers have forgotten, and
again while they run. Fields of `Scene`, by its name."""

from __future__ import annotations

from typing import Any, Final

from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL, METADATA_VERSION
from simulation.shapes.shape import LEVELS
from tests.sim.planted.focus import TOPICS, Focus

_T0 = TOPICS[:1]

REGISTRATIONS: Final[dict[str, dict[str, Any]]] = {
    "an eligible replica is unregistered": {
        "focus": Focus(topics=_T0, idempotent=0, elr=True),
        "events": (
            (100, "cut", "node 3", {"for_ms": 4_000, "from": "brokers"}),
            (100, "cut", "node 4", {"for_ms": 4_000, "from": "brokers"}),
            (3_000, "unregister lost", "node 2", {"torn": True, "for_ms": 300}),
        ),
        "quiet_ms": 4_800,
        "bugs": ("first registration counted as clean",),
    },
    "the level rises on running brokers": {
        "focus": Focus(topics=_T0, idempotent=0, level=DIRECTORY_ASSIGNMENT_LEVEL - 1),
        "events": (
            (500, "metadata level", METADATA_VERSION, {"level": LEVELS.max_level, "for_ms": 1}),
        ),
        "quiet_ms": 1_500,
        "bugs": ("registration not repeated", "directories of old replicas not reported"),
        "slow": True,
    },
}
