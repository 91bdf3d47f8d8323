"""Shrinking: the smallest schedule that still breaks the same promise, by delta debugging.

Pure search over schedules: the function that plays one is an argument. It reduces, in this order:
events, clients, topics, nodes, times, settings, links and disks. A step is kept if the rest breaks
a promise with the same code. Rounds continue until one changes nothing, or the budget is over.

Two things are not removed, since without them another promise would seem to break under the same
code: a client with acknowledged writes (P26 requires writes in the quiet phase), and settings that
are only sound together (each keeps one of the values that any shape may draw).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, TypeVar

from simulation.event import Event
from simulation.faults import KINDS as FAULTS
from simulation.schedule import FOR_MS_MIN, Schedule
from simulation.shapes.drawing import SETTINGS
from simulation.shapes.shape import BadShape, DiskShape, LinkShape, NodeShape, Shape, TopicShape

T = TypeVar("T")

TRIES_MAX = 500
STEADY_LINK = LinkShape(1.0, 1.0)
STEADY_DISK = DiskShape(1.0, 1.0, 0.0)
"""A link and a disk without randomness."""
FIRST_MS = 200
"""Milliseconds that suffice before the first event."""
ACKNOWLEDGED = ("acks all", "idempotent")
"""Kinds of clients of which one stays: its writes are acknowledged by all of the ISR."""


class Verdict(NamedTuple):
    """The result of playing a schedule: the code of the broken promise, and its time in
    milliseconds after the first boot."""

    code: str
    at_ms: float


Play = Callable[[Schedule, float], Verdict | None]
"""Plays a schedule, at most to this number of virtual milliseconds after the first boot."""
PATIENCE_MS = 5_000.0
"""Milliseconds by which a promise may break later than before: a run that holds until then is
ended."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest schedule that was found. `tries` counts the schedules that were played."""

    schedule: Schedule
    verdict: Verdict
    tries: int


def shrink(
    schedule: Schedule,
    play: Play,
    *,
    may_go_on: Callable[[], bool] = lambda: True,
    tries_max: int = TRIES_MAX,
) -> Shrunk | None:
    """Return the smallest schedule with the same broken promise, None if the schedule breaks none.

    Args:
        play: returns the same verdict for the same schedule.
        may_go_on: False ends the search with the best so far; called before each try.
        tries_max: the largest number of schedules to play, including the first one.
    """
    verdict = play(schedule, inf)
    if verdict is None:
        return None
    search = _Search(schedule, verdict, play, may_go_on, tries_max)
    search.run()
    return Shrunk(search.best, search.verdict, search.tries)


class _Search:
    """The best schedule so far, and those that were played already."""

    def __init__(
        self,
        best: Schedule,
        verdict: Verdict,
        play: Play,
        may_go_on: Callable[[], bool],
        tries_max: int,
    ) -> None:
        self.best = best
        self.verdict = verdict
        self.tries = 1
        self._play = play
        self._may_go_on = may_go_on
        self._tries_max = tries_max
        self._played = {repr(best)}

    def run(self) -> None:
        before = None
        while before != self.best and not self.over:
            before = self.best
            self._before_the_break()
            self._fewer(lambda one: one.events, lambda one, kept: replace(one, events=kept))
            self._fewer(lambda one: one.shape.clients, _with_clients)
            for smaller in (_topics, _nodes, _times, _settings, _places):
                self._each(smaller)

    @property
    def over(self) -> bool:
        return self.tries >= self._tries_max or not self._may_go_on()

    def _keeps(self, candidate: Schedule | None) -> bool:
        """Play a candidate. Returns: whether it breaks the same promise and is the best now."""
        if candidate is None or repr(candidate) in self._played or self.over:
            return False
        self._played.add(repr(candidate))
        if not is_sound(candidate):
            return False
        self.tries += 1
        verdict = self._play(candidate, self.verdict.at_ms + PATIENCE_MS)
        if verdict is None or verdict.code != self.verdict.code:
            return False
        self.best, self.verdict = candidate, verdict
        return True

    def _before_the_break(self) -> None:
        """Remove events after the break, which had no effect, and the time without events before
        quiet."""
        due = tuple(one for one in self.best.events if one.at_ms <= self.verdict.at_ms)
        self._keeps(replace(self.best, events=due))
        ends = max((one.at_ms + one.for_ms for one in self.best.events), default=0)
        self._keeps(replace(self.best, quiet_from_ms=min(ends, self.best.quiet_from_ms)))

    def _fewer(
        self,
        items: Callable[[Schedule], tuple[T, ...]],
        rebuilt: Callable[[Schedule, tuple[T, ...]], Schedule],
    ) -> None:
        """Remove runs of items, long ones first, until no single item can be removed."""
        length = max(1, len(items(self.best)))
        while not self.over:
            at, kept = 0, False
            while at < len(items(self.best)):
                left = items(self.best)
                if self._keeps(rebuilt(self.best, left[:at] + left[at + length :])):
                    kept = True
                else:
                    at += length
            if length == 1 and not kept:
                return
            length = max(1, length // 2)

    def _each(self, smaller: Callable[[Schedule], Iterator[Schedule]]) -> None:
        """Try smaller candidates until none of them is kept."""
        while any(self._keeps(one) for one in smaller(self.best)):
            pass


def is_sound(schedule: Schedule) -> bool:
    """Return whether the schedule can be run, and requires of a cluster only what any seed may
    require."""
    try:
        schedule.check()
    except BadShape:
        return False
    shape = schedule.shape
    possible = all(FAULTS[one.kind].possible(shape) for one in schedule.events)
    return possible and any(one.kind in ACKNOWLEDGED for one in shape.clients)


# --- what is smaller ------------------------------------------------------------------------------


def _with(schedule: Schedule, **changes: Any) -> Schedule:
    return replace(schedule, shape=replace(schedule.shape, **changes))


def _with_clients(schedule: Schedule, kept: tuple[Any, ...]) -> Schedule:
    return _with(schedule, clients=kept)


def _without(items: Sequence[T], at: int) -> tuple[T, ...]:
    return (*items[:at], *items[at + 1 :])


def _with_one(items: Sequence[T], at: int, other: T) -> tuple[T, ...]:
    return (*items[:at], other, *items[at + 1 :])


def _topics(schedule: Schedule) -> Iterator[Schedule]:
    topics = schedule.shape.topics
    for at in range(len(topics)):
        yield _with(schedule, topics=_without(topics, at))
    for at, topic in enumerate(topics):
        for other in _smaller_topics(topic):
            yield _with(schedule, topics=_with_one(topics, at, other))


def _smaller_topics(topic: TopicShape) -> Iterator[TopicShape]:
    if topic.partitions > 1:
        yield replace(topic, partitions=topic.partitions - 1)
    if topic.replication_factor > 1:
        yield _with_factor(topic, topic.replication_factor - 1)
    for key in topic.configs:
        configs = {other: value for other, value in topic.configs.items() if other != key}
        yield replace(topic, configs=configs)


def _with_factor(topic: TopicShape, factor: int) -> TopicShape:
    configs = dict(topic.configs)
    if topic.min_isr > factor:
        configs["min.insync.replicas"] = str(factor)
    return replace(topic, replication_factor=factor, configs=configs)


def _nodes(schedule: Schedule) -> Iterator[Schedule]:
    shape = schedule.shape
    for at in reversed(range(len(shape.nodes))):
        left = _without(shape.nodes, at)
        nodes = tuple(replace(one, node_id=number) for number, one in enumerate(left, 1))
        brokers = sum(one.serves for one in nodes)
        if brokers:
            topics = tuple(
                _with_factor(one, min(one.replication_factor, brokers)) for one in shape.topics
            )
            yield _with(schedule, nodes=nodes, topics=topics)
    for at, node in enumerate(shape.nodes):
        for other in _simpler_nodes(node):
            yield _with(schedule, nodes=_with_one(shape.nodes, at, other))


def _simpler_nodes(node: NodeShape) -> Iterator[NodeShape]:
    if node.settings:
        yield replace(node, settings={})
    if node.rack is not None:
        yield replace(node, rack=None)
    if node.link is not None:
        yield replace(node, link=None)


def _times(schedule: Schedule) -> Iterator[Schedule]:
    events = schedule.events
    ends = max((one.at_ms + one.for_ms for one in events), default=0)
    if ends < schedule.quiet_from_ms:
        yield replace(schedule, quiet_from_ms=ends)
        yield replace(schedule, quiet_from_ms=(ends + schedule.quiet_from_ms) // 2)
    for at, event in enumerate(events):
        before = max((one.at_ms for one in events if one.at_ms < event.at_ms), default=0)
        for gap_ms in (FIRST_MS, (event.at_ms - before) // 2):
            if gap_ms < event.at_ms - before:
                yield _earlier(schedule, event.at_ms, event.at_ms - before - gap_ms)
        if event.for_ms > FOR_MS_MIN:
            shorter = {**event.args, "for_ms": max(FOR_MS_MIN, event.for_ms // 2)}
            yield replace(schedule, events=_with_one(events, at, replace(event, args=shorter)))


def _earlier(schedule: Schedule, from_ms: int, by_ms: int) -> Schedule:
    """Move all events from a time on, and the start of quiet, to an earlier time."""

    def moved(one: Event) -> Event:
        return replace(one, at_ms=one.at_ms - by_ms) if one.at_ms >= from_ms else one

    events = tuple(moved(one) for one in schedule.events)
    ends = max((one.at_ms + one.for_ms for one in events), default=0)
    return replace(schedule, events=events, quiet_from_ms=max(ends, schedule.quiet_from_ms - by_ms))


def _settings(schedule: Schedule) -> Iterator[Schedule]:
    settings = schedule.shape.settings
    for key, value in settings.items():
        plain = SETTINGS.get(key, (None,))[-1]
        if plain is None:
            left = {other: told for other, told in settings.items() if other != key}
            yield _with(schedule, settings=left)
        elif value != plain:
            yield _with(schedule, settings={**settings, key: plain})


def _places(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules without randomness of links or disks, without ELR, with the newest level, or
    without weights of unused faults."""
    shape = schedule.shape
    if shape.link != STEADY_LINK:
        yield _with(schedule, link=STEADY_LINK)
    if shape.disk != STEADY_DISK:
        yield _with(schedule, disk=STEADY_DISK)
    if shape.elr:
        yield _with(schedule, elr=False)
    if shape.metadata_version is not None:
        yield _with(schedule, metadata_version=None)
    used = {one.kind for one in schedule.events}
    faults = {kind: weight for kind, weight in shape.faults.items() if kind in used}
    if faults != shape.faults:
        yield _with(schedule, faults=faults)


def words(schedule: Schedule) -> str:
    """Return the size of a schedule in words."""
    shape: Shape = schedule.shape
    counts = (
        (len(schedule.events), "event"),
        (len(shape.clients), "client"),
        (len(shape.nodes), "node"),
        (sum(one.partitions for one in shape.topics), "partition"),
    )
    told = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts)
    return f"{told}, {schedule.quiet_from_ms / 1000:g} s of trouble"
