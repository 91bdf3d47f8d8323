"""The schedule of a run: its shape and its timed events, decided before it begins.

Times are milliseconds since the clients of the run have started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from simulation.chance import stream
from simulation.clients import KINDS as CLIENTS
from simulation.event import Event
from simulation.faults import (
    BESIDE_REPLICAS,
    BESIDE_TIER,
    BY_NAME,
    ELECTIONS,
    LATER,
    REPLICAS,
    TIER,
)
from simulation.faults import KINDS as FAULTS
from simulation.faults.kind import FaultKind, OperatorKind
from simulation.shapes.drawing import (
    draw_apart,
    draw_faults,
    draw_kraft_version,
    draw_level,
    draw_shape,
)
from simulation.shapes.elections import draw_elections
from simulation.shapes.expiry import draw_expiry
from simulation.shapes.hasty import draw_hasty
from simulation.shapes.replicas import begins_late, draw_replicas
from simulation.shapes.shape import WEIGHT_MAX, Shape, demand
from simulation.shapes.tier import draw_copy_lag, draw_tier

if TYPE_CHECKING:
    from random import Random

VERSION = 1
TROUBLE_MS_MIN, TROUBLE_MS_MAX = 8_000, 60_000
FOR_MS_MIN = 100
FOR_MS_MAX = 9_000
EVENTS_MAX = 60
ELECTIONS_MS = 6_000.0
"""Mean time between two events about elections."""
LATER_MS = 6_000.0
"""Mean time between two events of kinds that were added later."""
TIER_MS = 4_000.0
"""Mean time between two events about tiered storage."""
REPLICAS_MS = 5_000.0
"""Mean time between two events about new replicas and local logs."""
LEADING = ("all down", "recovery struck")
"""Kinds without which the others have no effect."""
LATER_CHANCE = 0.3
PREFIXES = {"event": "e", "elections": "x", "tier": "t", "replicas": "n"}
PREFIXES |= {
    "later": "l",
    "rules": "r",
    "stalls": "s",
    "seconds": "p",
    "flips": "b",
    "levels": "v",
    "hours": "h",
    "rot": "i",
    "spoilt": "o",
    "behind": "c",
    "voters": "w",
    "ports": "q",
    "forgotten": "g",
    "tier topic": "m",
    "store calls": "a",
    "tier requests": "j",
    "transactions": "y",
}


@dataclass(frozen=True)
class Schedule:
    """A schedule. From `quiet_from_ms` on no fault is active, and everything must become whole."""

    seed: int
    shape: Shape
    events: tuple[Event, ...]
    quiet_from_ms: int

    def check(self) -> None:
        """Raise BadShape if the schedule cannot be run."""
        self.shape.check()
        demand(
            0 <= self.quiet_from_ms <= TROUBLE_MS_MAX,
            f"quiet_from_ms must be 0 to {TROUBLE_MS_MAX}, not {self.quiet_from_ms}",
        )
        names = [one.name for one in self.events]
        demand(len(set(names)) == len(names), "two events have one name")
        for one in self.events:
            demand(one.kind in FAULTS, f"unknown kind of fault {one.kind!r}")
            ends = one.at_ms + one.for_ms
            inside = 0 <= one.at_ms <= ends <= self.quiet_from_ms
            demand(
                inside, f"{one.name} ends at {ends} ms, after quiet_from_ms {self.quiet_from_ms}"
            )
        for client in self.shape.clients:
            demand(client.kind in CLIENTS, f"unknown kind of client {client.kind!r}")
        for kind in self.shape.faults:
            demand(kind in FAULTS, f"unknown kind of fault {kind!r}")

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {"version": VERSION, **asdict(self), "events": [asdict(e) for e in self.events]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schedule:
        """Return the schedule of these values. Raises: BadShape if they are not a valid
        schedule."""
        demand(isinstance(value, Mapping), "a schedule must be a JSON object")
        demand(
            value.get("version") == VERSION,
            f"the schedule's version must be {VERSION}, not {value.get('version')}",
        )
        shape = Shape.from_json(value.get("shape") or {})
        try:
            schedule = cls(
                seed=int(value["seed"]),
                shape=shape,
                events=tuple(Event(**one) for one in value["events"]),
                quiet_from_ms=int(value["quiet_from_ms"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            demand(False, f"invalid schedule: {error}")
            raise
        schedule.check()
        return schedule


def draw_schedule(
    seed: int, faults: Collection[str] | None = None, *, tiered: bool | None = None
) -> Schedule:
    """Draw the schedule of a seed.

    `faults` restricts the fault kinds, `tiered` decides whether there is tiered storage. Events
    about elections, and about tiers, are drawn from streams of their own, so that the rest is the
    same without them.
    """
    chosen = set(FAULTS) - BY_NAME if faults is None else set(faults)
    kinds = {name: kind for name, kind in FAULTS.items() if name in chosen}
    late = frozenset().union(*LATER.values())
    apart_kinds = ELECTIONS | late | TIER | REPLICAS
    common = {name: kind for name, kind in kinds.items() if name not in apart_kinds}
    shape = draw_shape(seed, common, CLIENTS)
    rng = stream(seed, "schedule")
    quiet_from_ms = rng.randint(TROUBLE_MS_MIN, TROUBLE_MS_MAX)
    pause_ms = rng.choice([700.0, 1_500.0, 3_000.0, 8_000.0])
    own = stream(seed, "elections")
    shape = draw_level(stream(seed, "level"), draw_elections(own, shape))
    shape = draw_kraft_version(stream(seed, "kraft.version"), shape)
    shape = draw_apart(seed, shape, CLIENTS)
    tier = stream(seed, "KIP-405")
    shape = draw_copy_lag(stream(seed, "KIP-1241"), draw_tier(tier, shape, tiered))
    shape = draw_expiry(stream(seed, "expiry"), shape)
    shape = draw_hasty(stream(seed, "hasty"), shape)
    apart = draw_faults(
        own, shape, {name: kinds[name] for name in kinds if name in ELECTIONS - late}
    )
    apart |= {name: WEIGHT_MAX for name in LEADING if shape.elr and name in kinds}
    events = [
        *_draw_events(seed, "event", rng, shape, shape.faults, pause_ms, quiet_from_ms),
        *_draw_events(seed, "elections", own, shape, apart, ELECTIONS_MS, quiet_from_ms),
    ]
    drawn = {**shape.faults, **apart}
    for name, those in LATER.items():
        chance = stream(seed, name)
        later = draw_faults(chance, shape, {one: kinds[one] for one in kinds if one in those})
        later = later if chance.random() < LATER_CHANCE else {}
        events += _draw_events(seed, name, chance, shape, later, LATER_MS, quiet_from_ms)
        drawn |= later
    if shape.has_tier:
        some = draw_faults(tier, shape, {name: kinds[name] for name in kinds if name in TIER})
        some |= {name: 1 for name in kinds if name in BESIDE_TIER and kinds[name].possible(shape)}
        events += _draw_events(seed, "tier", tier, shape, some, TIER_MS, quiet_from_ms)
        drawn |= some
    shape, some = _draw_replicas(seed, kinds, shape)
    fresh = stream(seed, "replicas")
    events += _draw_events(seed, "replicas", fresh, shape, some, REPLICAS_MS, quiet_from_ms)
    drawn = {**some, **drawn}
    return Schedule(seed, replace(shape, faults=drawn), tuple(events), quiet_from_ms)


def _draw_replicas(
    seed: int, kinds: Mapping[str, FaultKind | OperatorKind], shape: Shape
) -> tuple[Shape, dict[str, int]]:
    """Return the shape, perhaps with keys about new replicas and local logs, and the kinds for
    these."""
    rng = stream(seed, "new replicas")
    whole = draw_replicas(rng, shape)
    if whole is shape:
        return shape, {}
    some = draw_faults(rng, whole, {name: kinds[name] for name in kinds if name in REPLICAS})
    if begins_late(whole):
        beside = (name for name in kinds if name in BESIDE_REPLICAS)
        some |= {name: 1 for name in beside if kinds[name].possible(whole)}
    return whole, some


def _draw_events(
    seed: int,
    name: str,
    rng: Random,
    shape: Shape,
    faults: Mapping[str, int],
    pause_ms: float,
    quiet_from_ms: int,
) -> Iterator[Event]:
    number = 0
    at_ms = rng.expovariate(1 / pause_ms)
    while at_ms < quiet_from_ms - FOR_MS_MIN and number < EVENTS_MAX and faults:
        own = stream(seed, name, number)
        kind = own.choices(list(faults), list(faults.values()))[0]
        target, args = FAULTS[kind].draw(own, shape)
        left_ms = quiet_from_ms - int(at_ms)
        args = {"for_ms": own.randint(FOR_MS_MIN, FOR_MS_MAX), **args}
        args["for_ms"] = min(left_ms, args["for_ms"])
        yield Event(f"{PREFIXES[name]}{number}", int(at_ms), kind, target, args)
        number += 1
        at_ms += rng.expovariate(1 / pause_ms)
