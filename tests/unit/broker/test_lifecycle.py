"""A broker's membership, step by step, without a network."""

from __future__ import annotations

import pytest

from broker.lifecycle import (
    TRANSITIONS,
    BecameReady,
    BrokerLifecycle,
    BrokerState,
    ContactLost,
    Effect,
    Event,
    FencingChanged,
    GiveUp,
    Heartbeat,
    HeartbeatAnswered,
    HeartbeatFailed,
    LifecycleTimes,
    MayStop,
    MetadataReplayed,
    Register,
    Registered,
    RegistrationFailed,
    ShutdownRequested,
    Started,
    TimerFired,
)
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated

FENCED = HeartbeatAnswered(is_caught_up=True, is_fenced=True, should_shut_down=False)
UNFENCED = HeartbeatAnswered(is_caught_up=True, is_fenced=False, should_shut_down=False)
GO = HeartbeatAnswered(is_caught_up=True, is_fenced=True, should_shut_down=True)


def new() -> BrokerLifecycle:
    return BrokerLifecycle(LifecycleTimes(), lambda: 1.0)


def run(lifecycle: BrokerLifecycle, *events: Event, now_ms: float = 0.0) -> list[Effect]:
    return [effect for event in events for effect in lifecycle.step(event, now_ms)]


def running() -> BrokerLifecycle:
    lifecycle = new()
    run(lifecycle, Started(), Registered(5), MetadataReplayed(9, 5), UNFENCED)
    assert lifecycle.state is BrokerState.RUNNING
    return lifecycle


def test_from_start_to_ready_in_two_requests() -> None:
    lifecycle = new()
    assert run(lifecycle, Started()) == [Register()]
    assert run(lifecycle, Registered(5)) == []
    assert run(lifecycle, MetadataReplayed(8, None)) == []
    assert run(lifecycle, MetadataReplayed(9, 5)) == [Heartbeat(5, 9, False, False)]
    assert not lifecycle.ready
    assert run(lifecycle, UNFENCED) == [FencingChanged(False), BecameReady()]
    assert lifecycle.ready
    assert lifecycle.next_deadline_ms() == 2000


def test_the_registration_may_be_replayed_before_it_is_answered() -> None:
    lifecycle = new()
    run(lifecycle, Started(), MetadataReplayed(9, 5))
    assert run(lifecycle, Registered(5)) == [Heartbeat(5, 9, False, False)]


def test_an_old_registration_in_the_image_is_not_ours() -> None:
    lifecycle = new()
    run(lifecycle, Started(), MetadataReplayed(9, 4))
    assert run(lifecycle, Registered(5)) == []
    # A slow replay must not let the session lapse: heartbeats go on, asking to stay fenced.
    assert run(lifecycle, TimerFired(), now_ms=2000) == [Heartbeat(5, 9, True, False)]


def test_a_replay_during_a_heartbeat_is_told_at_once_by_the_next_one() -> None:
    lifecycle = new()
    run(lifecycle, Started(), Registered(5))
    assert run(lifecycle, TimerFired(), now_ms=2000) == [Heartbeat(5, -1, True, False)]
    assert run(lifecycle, MetadataReplayed(9, 5), now_ms=2001) == []
    assert run(lifecycle, FENCED, now_ms=2002) == [Heartbeat(5, 9, False, False)]


def test_an_unreachable_controller_is_asked_for_ever_with_growing_pauses() -> None:
    lifecycle = new()
    run(lifecycle, Started())
    now_ms, pauses = 0.0, []
    for _ in range(40):
        run(lifecycle, RegistrationFailed(None), now_ms=now_ms)
        due_ms = lifecycle.next_deadline_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
        assert run(lifecycle, TimerFired(), now_ms=now_ms) == [Register()]
    assert pauses[:6] == [50, 100, 200, 400, 800, 1000]
    assert set(pauses[6:]) == {1000}


def test_a_duplicate_registration_is_retried_until_its_time_is_up() -> None:
    lifecycle = new()
    run(lifecycle, Started())
    error = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert run(lifecycle, RegistrationFailed(error), now_ms=100) == []
    run(lifecycle, TimerFired(), now_ms=10_000)
    assert run(lifecycle, RegistrationFailed(error), now_ms=60_000) == [GiveUp(error)]
    assert lifecycle.state is BrokerState.SHUTTING_DOWN


def test_another_clusters_controller_ends_the_start_at_once() -> None:
    lifecycle = new()
    run(lifecycle, Started())
    error = ErrorCode.INCONSISTENT_CLUSTER_ID
    assert run(lifecycle, RegistrationFailed(error)) == [GiveUp(error)]


def test_a_broker_that_stays_fenced_asks_again_soon_and_ever_less_often() -> None:
    lifecycle = new()
    run(lifecycle, Started(), Registered(5), MetadataReplayed(9, 5))
    pauses = []
    now_ms = 0.0
    for _ in range(10):
        run(lifecycle, FENCED, now_ms=now_ms)
        due_ms = lifecycle.next_deadline_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
        run(lifecycle, TimerFired(), now_ms=now_ms)
    assert pauses == [20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000]


def test_being_fenced_later_does_not_end_the_running_state() -> None:
    lifecycle = running()
    assert run(lifecycle, TimerFired(), now_ms=2000) == [Heartbeat(5, 9, False, False)]
    assert run(lifecycle, FENCED, now_ms=2001) == [FencingChanged(True)]
    assert lifecycle.ready
    assert run(lifecycle, TimerFired(), now_ms=2021) == [Heartbeat(5, 9, False, False)]
    assert run(lifecycle, UNFENCED, now_ms=2022) == [FencingChanged(False)]


def test_a_failed_heartbeat_is_repeated_long_before_the_session_ends() -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2000)
    run(lifecycle, HeartbeatFailed(None), now_ms=2010)
    assert lifecycle.next_deadline_ms() == 2060


def test_a_lost_connection_is_made_good_at_once() -> None:
    """Also in the middle of a heartbeat, whose failure would otherwise bring a pause."""
    lifecycle = running()
    assert run(lifecycle, ContactLost(), now_ms=700) == [Heartbeat(5, 9, False, False)]
    assert run(lifecycle, ContactLost(), HeartbeatFailed(None), now_ms=701) == [
        Heartbeat(5, 9, False, False)
    ]
    assert run(lifecycle, HeartbeatFailed(None), now_ms=702) == []
    assert lifecycle.next_deadline_ms() == 702 + 100


def test_a_connection_lost_before_registration_asks_for_nothing() -> None:
    lifecycle = new()
    assert run(lifecycle, ContactLost()) == []
    run(lifecycle, Started(), RegistrationFailed(None))
    assert run(lifecycle, ContactLost()) == []


def test_shutdown_asks_until_the_controller_grants_it() -> None:
    lifecycle = running()
    asked = run(lifecycle, ShutdownRequested(deadline_ms=30_000), now_ms=10)
    assert asked == [Heartbeat(5, 9, False, True)]
    assert run(lifecycle, UNFENCED, now_ms=11) == []
    assert run(lifecycle, TimerFired(), now_ms=31) == [Heartbeat(5, 9, False, True)]
    assert run(lifecycle, GO, now_ms=32) == [FencingChanged(True), MayStop(True)]
    assert lifecycle.state is BrokerState.SHUTTING_DOWN
    assert lifecycle.next_deadline_ms() is None
    assert run(lifecycle, TimerFired(), now_ms=99_000) == []


def test_shutdown_waits_for_a_heartbeat_in_flight_and_then_asks_at_once() -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2000)
    assert run(lifecycle, ShutdownRequested(deadline_ms=30_000), now_ms=2001) == []
    assert run(lifecycle, UNFENCED, now_ms=2002) == [Heartbeat(5, 9, False, True)]


def test_shutdown_without_a_controller_ends_at_its_deadline() -> None:
    lifecycle = running()
    run(lifecycle, ShutdownRequested(deadline_ms=5_000))
    assert lifecycle.next_deadline_ms() == 5_000
    assert run(lifecycle, TimerFired(), now_ms=5_000) == [MayStop(False)]
    # The answer that comes too late changes nothing.
    run(lifecycle, GO, now_ms=5_001)
    assert lifecycle.state is BrokerState.SHUTTING_DOWN


def test_shutdown_before_registration_asks_nobody() -> None:
    lifecycle = new()
    run(lifecycle, Started())
    assert run(lifecycle, ShutdownRequested(deadline_ms=5_000)) == [MayStop(True)]
    assert run(lifecycle, Registered(5)) == []
    assert lifecycle.state is BrokerState.SHUTTING_DOWN


def test_every_other_transition_is_refused() -> None:
    for before in BrokerState:
        for after in BrokerState:
            lifecycle = new()
            lifecycle.state = before
            if (before, after) in TRANSITIONS:
                lifecycle._enter(after)
                assert lifecycle.state is after
            else:
                with pytest.raises(InvariantViolated):
                    lifecycle._enter(after)
