"""A scene: a schedule written by hand, in which planted bugs show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from simulation.event import Event
from simulation.schedule import Schedule
from simulation.shapes.shape import TopicShape
from tests.sim.planted.focus import Focus

When = tuple[int, str, str, dict[str, Any]]
"""Time in milliseconds, kind of fault, target, and arguments."""
Places = tuple[tuple[int, ...], ...]
"""The brokers of each partition of a topic, its leader first."""
USUAL: dict[str, Places] = {"t0": ((2, 4, 3), (4, 3, 2)), "t1": ((3, 2), (2, 4))}


@dataclass(frozen=True)
class Scene:
    """One schedule, and the bugs that it shows."""

    focus: Focus
    events: tuple[When, ...]
    quiet_ms: int
    bugs: tuple[str, ...]
    seed: int = 1
    slow: bool = False
    """True if the bugs break a liveness promise, so that two virtual minutes must pass."""
    places: Mapping[str, Places] = field(default_factory=lambda: USUAL)
    """The replicas of each partition on three brokers. Drawn replicas would change whenever the
    nodes' timing changes."""
    drawn: Focus | None = None
    """The cluster of focused runs; None: the scene's own. It has more partitions if a fault must
    hit a leader and its follower."""

    def schedule(self) -> Schedule:
        """Return the schedule to play."""
        events = tuple(
            Event(f"e{number}", at_ms, kind, target, args)
            for number, (at_ms, kind, target, args) in enumerate(self.events)
        )
        shape = self.focus.shape()
        if [one.node_id for one in shape.brokers] == [2, 3, 4]:
            shape = replace(shape, topics=tuple(map(self._placed, shape.topics)))
        return Schedule(self.seed, shape, events, self.quiet_ms)

    def _placed(self, topic: TopicShape) -> TopicShape:
        places, factor = self.places.get(topic.name, ()), topic.replication_factor
        if factor < 2 or len(places) < topic.partitions:
            return topic
        return replace(topic, replicas=tuple(one[:factor] for one in places[: topic.partitions]))

    def draw(self, seed: int) -> Schedule:
        """Return a schedule with the same kinds of faults at other times."""
        kinds = sorted({kind for _, kind, _, _ in self.events} | {"kill"})
        return (self.drawn or self.focus).draw(seed, kinds)
