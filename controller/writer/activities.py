"""Periodic and event-driven work of the active controller.

Each activity has the monotonic time at which it is due, None if it is not. The time changes when a
controller becomes active, with each append, and when the activity has acted. This module has no
timers: the writer keeps one per activity and appends the records that it returns.

An activity with more work is due again at once, so that others run in between. A step takes a few
milliseconds.
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
"""A longer delay is not caused by other activities: the process was busy or suspended."""
GRACE_MS = 500.0

_log = get_logger("controller")

MakeView: TypeAlias = Callable[[], ControllerView]


class Activity(Protocol):
    """Work that the active controller starts by itself."""

    due_ms: float | None

    def begin(self, now_ms: float) -> None:
        """Start: this controller has become active."""

    def end(self) -> None:
        """Stop: this controller is no longer active, and nothing is due."""

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        """Decide the next step and set `due_ms`. Returns: the records to append."""
        ...

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        """Note records that were appended and replayed, from any decision."""


class Activities:
    """All activities of a controller."""

    __slots__ = ("_activities",)

    def __init__(self, activities: Iterable[Activity]) -> None:
        self._activities = tuple(activities)

    def __iter__(self) -> Iterator[Activity]:
        return iter(self._activities)

    def begin(self, now_ms: float) -> None:
        """Start all activities: this controller has become active."""
        for activity in self._activities:
            activity.begin(now_ms)

    def end(self) -> None:
        """Stop all activities: nothing is due any more."""
        for activity in self._activities:
            activity.end()

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        """Pass records that were appended and replayed to all activities."""
        for activity in self._activities:
            activity.appended(records, now_ms)


class Fencing:
    """Fencing of brokers whose session has expired.

    It is due when the next session may expire, and checks again then: a heartbeat in between does
    not change `due_ms`. A late step means that this process was suspended, so heartbeats may have
    arrived in time and wait to be read. The activity then waits a moment before it fences a broker.

    All brokers that one check finds expired are fenced, however many steps that takes. A step
    changes a bounded number of partitions, and other activities run before the next.
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
        """Update `due_ms`: a session may end earlier than known so far."""
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
                "Fencing a broker without a heartbeat", broker=broker_id, cause=cause.value
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
    """Clean elections that the previous controller left over, run once when a controller starts.

    A broker is unfenced first and gets leaderships afterwards, in steps. If a controller ends in
    between, the broker counts as unfenced, so no other event would trigger the remaining elections.
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
        """Do nothing: a decision that unfences a broker also elects."""


class Idling:
    """Periodic NoOp records, so that brokers see that their metadata is current (KIP-835).

    Args:
        is_pending: returns whether an append waits for its commit, which serves the same purpose.
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
    """A decision that repeats at an interval.

    It repeats at once while its reply is True, and when one of the configurations in `wakes_on` is
    written.
    """

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
