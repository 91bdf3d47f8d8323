"""The active controller's activities without an event loop: due times and decisions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.decision import ControllerView, Decision
from controller.writer.activities import (
    GRACE_MS,
    LATE_MS,
    Activities,
    Fencing,
    Idling,
    MakeView,
    Upkeep,
)
from controller.writer.stats import ControllerStats
from metalog.image.values import BrokerImage
from protocol.metadata import ConfigRecord, NoOpRecord
from protocol.schema import MetadataRecord
from testkit.memory.controller import SESSION_TIMEOUT_MS, Cluster

OTHER = ConfigRecord(resource_type=2, resource_name="t", name="other", value="1")
WAKES = ConfigRecord(resource_type=2, resource_name="t", name="wakes", value="1")


def no_view() -> ControllerView:
    raise AssertionError("it needs no view")


class At:
    """An activity that is due at a time and does nothing."""

    def __init__(self, due_ms: float | None) -> None:
        self.due_ms = due_ms

    def begin(self, now_ms: float) -> None:
        self.due_ms = now_ms

    def end(self) -> None:
        self.due_ms = None

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        return ()

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        self.due_ms = now_ms + len(records)


def test_activity_registry_notifies_all_activities() -> None:
    activities = At(5.0), At(None)
    registry = Activities(activities)
    assert tuple(registry) == activities
    registry.appended([OTHER, WAKES], 10.0)
    assert [activity.due_ms for activity in activities] == [12.0, 12.0]
    registry.begin(20.0)
    assert [activity.due_ms for activity in activities] == [20.0, 20.0]
    registry.end()
    assert [activity.due_ms for activity in activities] == [None, None]


# --- fencing ------------------------------------------------------------------------------------


class Fenced:
    """Brokers 1 to 3 with equally old heartbeats, and the activity that fences them."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.start(1, 2, 3)
        self.cluster.create_topic("t", [1, 2, 3])
        self.stats = ControllerStats()
        self.fencing = Fencing(
            self.cluster.heartbeats, self.cluster.settings.session_timeouts, self.stats
        )
        self.fencing.begin(self.cluster.monotonic_ms)

    def turn(self) -> None:
        now_ms = self.cluster.monotonic_ms
        self.fencing.due_ms = now_ms
        while self.fencing.due_ms is not None and self.fencing.due_ms <= now_ms:
            self.cluster.apply(self.fencing.act(now_ms, self.cluster.view))

    @property
    def brokers(self) -> list[BrokerImage]:
        brokers = self.cluster.image.cluster.brokers
        return [brokers[broker] for broker in sorted(brokers)]

    def fenced(self) -> list[int]:
        return [broker.id for broker in self.brokers if broker.fenced]


def test_all_who_are_overdue_are_fenced_in_one_turn() -> None:
    it = Fenced()
    start_ms = it.cluster.monotonic_ms
    assert it.fencing.due_ms == start_ms + SESSION_TIMEOUT_MS
    it.cluster.advance(SESSION_TIMEOUT_MS / 2)
    it.cluster.touch(3)
    it.cluster.advance(SESSION_TIMEOUT_MS / 2)
    it.turn()
    assert it.fenced() == [1, 2]
    assert it.stats.timed_out_heartbeats == 2
    assert it.cluster.partition("t").leader == 3
    assert it.fencing.due_ms == start_ms + SESSION_TIMEOUT_MS * 1.5


def test_fencing_without_expired_session_waits_for_next_one() -> None:
    it = Fenced()
    it.cluster.advance(SESSION_TIMEOUT_MS / 2)
    for broker in (1, 2, 3):
        it.cluster.touch(broker)
    it.turn()
    assert it.fenced() == []
    assert it.fencing.due_ms == it.cluster.monotonic_ms + SESSION_TIMEOUT_MS


@pytest.mark.parametrize(("late_ms", "grace_ms"), [(60.0, 60.0), (9_000.0, GRACE_MS)])
def test_f35_a_turn_that_is_late_gives_a_moment_once(late_ms: float, grace_ms: float) -> None:
    it = Fenced()
    it.cluster.advance(SESSION_TIMEOUT_MS + late_ms)
    it.turn()
    assert it.fenced() == []
    assert it.fencing.due_ms == it.cluster.monotonic_ms + grace_ms
    it.cluster.advance(grace_ms)
    it.cluster.touch(2)
    it.turn()
    assert it.fenced() == [1, 3]
    it.cluster.advance(SESSION_TIMEOUT_MS + late_ms)
    it.turn()
    assert it.fenced() == [1, 3], "the next stall is another one"


def test_a_turn_that_is_hardly_late_gives_none() -> None:
    it = Fenced()
    it.cluster.advance(SESSION_TIMEOUT_MS + LATE_MS)
    it.turn()
    assert it.fenced() == [1, 2, 3]
    assert it.fencing.due_ms is None


def test_a_turn_cut_short_by_a_lost_leadership_is_not_gone_on_with() -> None:
    it = Fenced()
    it.cluster.advance(SESSION_TIMEOUT_MS)
    assert it.fencing.act(it.cluster.monotonic_ms, it.cluster.view)
    assert it.fencing.due_ms == it.cluster.monotonic_ms, "it would go on at once"
    it.fencing.look_again()
    assert it.fencing.due_ms == it.cluster.monotonic_ms
    it.fencing.begin(it.cluster.monotonic_ms)
    it.cluster.advance(LATE_MS * 2)
    it.turn()
    assert it.fenced() == []


def test_fencing_starts_with_first_appended_broker() -> None:
    it = Fenced()
    it.fencing.due_ms = None
    it.fencing.appended([], it.cluster.monotonic_ms)
    assert it.fencing.due_ms == it.cluster.monotonic_ms + SESSION_TIMEOUT_MS


# --- the others ---------------------------------------------------------------------------------


def test_an_idle_log_gets_a_record() -> None:
    pending = False
    idling = Idling(500.0, lambda: pending)
    idling.appended([OTHER], 1_000.0)
    idling.begin(1_100.0)
    assert idling.due_ms == 1_500.0
    idling.appended([OTHER], 1_300.0)
    assert idling.act(1_500.0, no_view) == ()
    assert idling.due_ms == 1_800.0
    assert idling.act(1_800.0, no_view) == (NoOpRecord(),)
    assert idling.due_ms == 2_300.0
    pending = True
    assert idling.act(2_300.0, no_view) == ()
    assert idling.due_ms == 2_800.0, "what is on its way shows it once it is there"


def test_upkeep_goes_on_at_once_while_there_is_more_and_wakes_on_its_configuration() -> None:
    more = [True, False]
    upkeep = Upkeep(lambda _: Decision((OTHER,), more.pop(0)), 500.0, wakes_on=frozenset({"wakes"}))
    view = Cluster().view
    upkeep.begin(0.0)
    assert upkeep.due_ms == 500.0
    assert upkeep.act(510.0, view) == (OTHER,)
    assert upkeep.due_ms == 510.0
    assert upkeep.act(511.0, view) == (OTHER,)
    assert upkeep.due_ms == 1_011.0
    upkeep.appended([OTHER], 600.0)
    assert upkeep.due_ms == 1_011.0
    upkeep.appended([OTHER, WAKES], 600.0)
    assert upkeep.due_ms == 600.0
