"""Faults of the object store of tiered storage (F33): it is down, slow, refuses, answers too little
or wrongly, or does what it is asked and the answer is lost; for one node, or for all.

No object is ever lost: that would take what the promises are made of.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.faults.kind import Args, OperatorKind
from simulation.world.store import StoreTrouble
from storage.objects import Weather

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape

EVERYBODY = "all nodes"
FRACTIONS = (0.1, 0.3, 0.7)
LATENCIES_MS = ([5.0, 50.0], [50.0, 400.0], [500.0, 3_000.0])
HANG_MS = (1_000.0, 5_000.0)


def _has_tier(shape: Shape) -> bool:
    return shape.has_tier


def _draw(name: str, values: tuple[Any, ...], rng: Random, shape: Shape) -> tuple[str, Args]:
    host = rng.choice([None, *(f"node-{one.node_id}" for one in shape.brokers)])
    weather: Args = {name: rng.choice(values)}
    if name == "hang":
        weather["hang_ms"] = rng.choice(HANG_MS)
    return host or EVERYBODY, {"weather": weather}


async def _lie(world: RunWorld, event: Event, _rng: Random) -> bool:
    given: dict[str, Any] = dict(event.args["weather"])
    if "latency_ms" in given:
        given["latency_ms"] = tuple(given["latency_ms"])  # JSON has lists
    host = None if event.target == EVERYBODY else event.target
    trouble = StoreTrouble(Weather(**given), host)
    world.store.lay(trouble)
    await asyncio.sleep(event.for_ms / 1000)
    world.store.lift(trouble)
    return bool(trouble.calls if "latency_ms" in given or "flipped" in given else trouble.errors)


def _kind(text: str, name: str, values: tuple[Any, ...]) -> OperatorKind:
    return OperatorKind("store", text, partial(_draw, name, values), _lie, _has_tier)


KINDS = {
    "store down": _kind("the object store cannot be reached", "down", (True,)),
    "store slow": _kind("the object store takes its time", "latency_ms", LATENCIES_MS),
    "store errors": _kind("the object store refuses some calls", "error", FRACTIONS),
    "store resets": _kind(
        "the object store does what it is asked, and some answers are lost",
        "error_after_success",
        FRACTIONS,
    ),
    "store short": _kind("some answers of the object store are cut", "short", FRACTIONS),
    "store flips": _kind(
        "a bit of some answers of the object store is wrong", "flipped", FRACTIONS
    ),
    "store hangs": _kind("some calls of the object store get no answer", "hang", FRACTIONS),
}
