"""Activities of the active controller: what waits, and decides again when it is due.

Each activity knows when it is due next, on the monotonic clock, None while it waits for nothing.
That changes when a controller becomes active, with each append, and when it has acted. There is no
timer in here: the writer keeps one for each, and appends what they decide.

An activity that has more to do at once is due at once, and lets others have their turn between: a
turn is short, a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from controller.brokers.registration import Silent, decide_fence_silent, silent_brokers
from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange
from controller.elections.triggers import BEGIN, part_of_changes
from controller.heartbeats import Heartbeats, SessionTimeouts
from controller.writer.stats import ControllerStats
from metalog.image.values import NO_LEADER, MetadataImage
from protocol.metadata import ConfigRecord, NoOpRecord
from protocol.schema import MetadataRecord
from runtime.log import get_logger

LATE_MS = 50.0
"""A turn that is later than this did not only wait for others: the process was busy or stopped."""
GRACE_MS = 500.0

_log = get_logger("controller")

MakeView: TypeAlias = Callable[[], ControllerView]


class Activity(Protocol):
    """One thing that the active controller does by itself."""

    due_ms: float | None

    def begin(self, now_ms: float) -> None:
        """This controller has become active."""

    def end(self) -> None:
        """This controller is active no longer: nothing is due any more."""

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        """Decide, and say when to do it next; returns the records to append."""
        ...

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        """Records were appended and replayed, whoever decided them."""


class Activities:
    """The registry."""

    __slots__ = ("_activities",)

    def __init__(self, activities: Iterable[Activity]) -> None:
        self._activities = tuple(activities)

    def __iter__(self) -> Iterator[Activity]:
        return iter(self._activities)

    def begin(self, now_ms: float) -> None:
        """Start over, as a controller that has just become active."""
        for activity in self._activities:
            activity.begin(now_ms)

    def end(self) -> None:
        """Nothing is due any more."""
        for activity in self._activities:
            activity.end()

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        """Records were appended and replayed."""
        for activity in self._activities:
            activity.appended(records, now_ms)


class Fencing:
    """Fences who is overdue; all of them by one look at the clock, however long that takes.

    It is due when the next session may expire, and looks again then: a heartbeat that has come in
    meanwhile moves nothing here. A turn that comes late says that this process stood still, and
    then heartbeats that came in time may wait to be read. So they are given a moment before anybody
    is fenced.

    A turn changes a bounded number of partitions, and others have theirs before the next.
    """

    def __init__(
        self, heartbeats: Heartbeats, timeouts: SessionTimeouts, stats: ControllerStats
    ) -> None:
        self.due_ms: float | None = None
        self._heartbeats = heartbeats
        self._timeouts = timeouts
        self._stats = stats
        self._gave_grace = False
        self._silent: Silent | None = None

    def begin(self, now_ms: float) -> None:
        self.end()
        self.look_again()

    def end(self) -> None:
        self.due_ms = None
        self._silent = None

    def look_again(self) -> None:
        """A session may end sooner than was known."""
        if self._silent is None:
            self.due_ms = self._heartbeats.next_expiry_ms(self._timeouts)

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        if self._silent is None:
            if self._waits_for_heartbeats(now_ms):
                return ()
            self._silent = silent_brokers(replace(view(), monotonic_ms=now_ms))
            self._tell(self._silent)
        decision = decide_fence_silent(view(), self._silent)
        self._silent = decision.reply
        self.due_ms = now_ms
        self.look_again()
        return decision.records

    def _tell(self, silent: Silent) -> None:
        for (broker_id, _), cause in silent.causes.items():
            self._stats.timed_out_heartbeats += 1
            _log.warning(
                "Fencing a broker that was not heard of", broker=broker_id, cause=cause.value
            )

    def _waits_for_heartbeats(self, now_ms: float) -> bool:
        expiry_ms = self._heartbeats.next_expiry_ms(self._timeouts)
        late_ms = 0.0 if expiry_ms is None else now_ms - expiry_ms
        self._gave_grace = late_ms > LATE_MS and not self._gave_grace
        if self._gave_grace:
            self.due_ms = now_ms + min(late_ms, GRACE_MS)
        return self._gave_grace

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        if self.due_ms is None:
            self.look_again()


class Vacancies:
    """Elects, where a controller begins, what the one before it left to be elected cleanly.

    A broker is unfenced first and leads afterwards, in steps. A controller that ends in between has
    nobody come back to what was not elected yet: the broker counts as unfenced.
    """

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self.due_ms: float | None = None
        self._image = image
        self._since = BEGIN

    def begin(self, now_ms: float) -> None:
        topics = self._image().topics.by_id.values()
        vacant = any(p.leader == NO_LEADER for t in topics for p in t.partitions.values())
        self.due_ms = now_ms if vacant else None
        self._since = BEGIN

    def end(self) -> None:
        self.due_ms = None

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        seen = view()
        brokers = seen.image.cluster.brokers
        unfenced = frozenset(
            broker_id for broker_id, broker in brokers.items() if not broker.fenced
        )
        change = BrokerChange(joining=unfenced)
        part = part_of_changes(seen, change, Cause.BROKER_UNFENCED, self._since)
        self.due_ms = None if part.since is None else now_ms
        self._since = part.since or BEGIN
        return part.records

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        """Whatever unfences a broker sees to its elections itself."""


class Idling:
    """A record now and then shows brokers that they are up to date (KIP-835).

    `is_pending` tells whether a batch is on its way: once that is committed it shows it as well.
    """

    def __init__(self, interval_ms: float, is_pending: Callable[[], bool]) -> None:
        self.due_ms: float | None = None
        self._interval_ms = interval_ms
        self._is_pending = is_pending
        self._last_append_ms = 0.0

    def begin(self, now_ms: float) -> None:
        due_ms = self._last_append_ms + self._interval_ms
        self.due_ms = due_ms if due_ms > now_ms else now_ms + self._interval_ms

    def end(self) -> None:
        self.due_ms = None

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        is_idle = now_ms - self._last_append_ms >= self._interval_ms and not self._is_pending()
        if is_idle:
            self._last_append_ms = now_ms
        self.begin(now_ms)
        return (NoOpRecord(),) if is_idle else ()

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        self._last_append_ms = now_ms


class Upkeep:
    """A decision that is made every interval, at once while it says that there is more, and when
    one of the configurations `wakes_on` is written."""

    def __init__(
        self,
        decide: Callable[[ControllerView], Decision[bool]],
        interval_ms: float,
        *,
        wakes_on: frozenset[str] = frozenset(),
    ) -> None:
        self.due_ms: float | None = None
        self._decide = decide
        self._interval_ms = interval_ms
        self._wakes_on = wakes_on

    def begin(self, now_ms: float) -> None:
        self.due_ms = now_ms + self._interval_ms

    def end(self) -> None:
        self.due_ms = None

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        decision = self._decide(view())
        self.due_ms = now_ms if decision.reply else now_ms + self._interval_ms
        return decision.records

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        if self._wakes_on and any(
            type(r) is ConfigRecord and r.name in self._wakes_on for r in records
        ):
            self.due_ms = now_ms
