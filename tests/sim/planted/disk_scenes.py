"""Scenes of disks: a restart, a power cut, and an empty disk. Fields of `Scene`, by its name."""

from __future__ import annotations

from typing import Any, Final

from tests.sim.planted.focus import TOPICS, Focus

DISK_SCENES: Final[dict[str, dict[str, Any]]] = {
    "a broker restarts": {
        "focus": Focus(),
        "events": (
            (300, "rolling restart", "all nodes", {"nodes": [3], "off_ms": 100, "for_ms": 1}),
        ),
        "quiet_ms": 1_000,
        "bugs": ("no marker of a clean stop", "marker of a clean stop ignored"),
    },
    "a broker loses power": {
        "focus": Focus(),
        "events": ((700, "power cut", "node 3", {"for_ms": 1, "torn": True, "dark": False}),),
        "quiet_ms": 1_200,
        "bugs": ("files replaced in place",),
    },
    "the only member in sync gets an empty disk": {
        "focus": Focus(topics=TOPICS[:1], idempotent=0),
        "events": (
            (300, "kill", "node 3", {"for_ms": 5_000}),
            (300, "kill", "node 4", {"for_ms": 5_000}),
            (2_500, "swapped disk", "node 2", {"off_ms": 300, "for_ms": 1_500}),
        ),
        "quiet_ms": 6_500,
        "bugs": ("any directory online", "new directory accepted at once"),
    },
}
