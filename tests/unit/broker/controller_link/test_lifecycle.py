"""A broker's membership, step by step, without a network."""

from __future__ import annotations

import pytest

from broker.controller_link.lifecycle import (
    TRANSITIONS,
    BecameReady,
    BrokerLifecycle,
    BrokerState,
    ContactLost,
    ControllerMoved,
    Effect,
    Event,
    FencingChanged,
    GiveUp,
    Heartbeat,
    HeartbeatAnswered,
    HeartbeatFailed,
    LeadNothing,
    LifecycleTimes,
    MayStop,
    MetadataReplayed,
    Register,
    Registered,
    Registration,
    RegistrationFailed,
    RegistrationGone,
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
    assert run(lifecycle, MetadataReplayed(4, None)) == []
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
    # Slow replay must not let the session expire: heartbeats continue, with a request to stay
    # fenced.
    assert run(lifecycle, TimerFired(), now_ms=2000) == [Heartbeat(5, 9, True, False)]


def test_heartbeat_after_replay_reports_new_offset_at_once() -> None:
    lifecycle = new()
    run(lifecycle, Started(), Registered(5))
    assert run(lifecycle, TimerFired(), now_ms=2000) == [Heartbeat(5, -1, True, False)]
    assert run(lifecycle, MetadataReplayed(9, 5), now_ms=2001) == []
    assert run(lifecycle, FENCED, now_ms=2002) == [Heartbeat(5, 9, False, False)]


def test_registration_is_retried_indefinitely_with_backoff() -> None:
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


def test_fenced_broker_sends_heartbeats_with_backoff() -> None:
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
    """This holds during a heartbeat, too, whose failure would otherwise cause a backoff."""
    lifecycle = running()
    assert run(lifecycle, ContactLost(), now_ms=700) == [Heartbeat(5, 9, False, False)]
    assert run(lifecycle, ContactLost(), HeartbeatFailed(None), now_ms=701) == [
        Heartbeat(5, 9, False, False)
    ]
    assert run(lifecycle, HeartbeatFailed(None), now_ms=702) == []
    assert lifecycle.next_deadline_ms() == 702 + 100


def test_lost_connection_before_registration_has_no_effect() -> None:
    lifecycle = new()
    assert run(lifecycle, ContactLost()) == []
    run(lifecycle, Started(), RegistrationFailed(None))
    assert run(lifecycle, ContactLost()) == []


def test_shutdown_repeats_heartbeats_until_granted() -> None:
    lifecycle = running()
    asked = run(lifecycle, ShutdownRequested(deadline_ms=30_000), now_ms=10)
    assert asked == [Heartbeat(5, 9, False, True)]
    assert run(lifecycle, UNFENCED, now_ms=11) == []
    assert run(lifecycle, TimerFired(), now_ms=31) == [Heartbeat(5, 9, False, True)]
    assert run(lifecycle, GO, now_ms=32) == [FencingChanged(True), MayStop(True)]
    assert lifecycle.state is BrokerState.SHUTTING_DOWN
    assert lifecycle.next_deadline_ms() is None
    assert run(lifecycle, TimerFired(), now_ms=99_000) == []


def test_shutdown_waits_for_heartbeat_in_flight() -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2000)
    assert run(lifecycle, ShutdownRequested(deadline_ms=30_000), now_ms=2001) == []
    assert run(lifecycle, UNFENCED, now_ms=2002) == [Heartbeat(5, 9, False, True)]


def test_shutdown_without_a_controller_ends_at_its_deadline() -> None:
    lifecycle = running()
    run(lifecycle, ShutdownRequested(deadline_ms=5_000))
    assert lifecycle.next_deadline_ms() == 5_000
    assert run(lifecycle, TimerFired(), now_ms=5_000) == [MayStop(False)]
    # The late answer changes nothing.
    run(lifecycle, GO, now_ms=5_001)
    assert lifecycle.state is BrokerState.SHUTTING_DOWN


def test_shutdown_before_registration_sends_no_request() -> None:
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


def test_a_new_controller_is_spoken_to_at_once() -> None:
    """A controller that has taken over has received no heartbeat yet."""
    lifecycle = running()
    assert lifecycle.next_deadline_ms() == 2000
    assert run(lifecycle, ControllerMoved(), now_ms=100) == [Heartbeat(5, 9, False, False)]
    # The request under way went to the controller before: it fails, and the next one is sent at
    # once.
    assert run(lifecycle, ControllerMoved(), now_ms=200) == []
    assert run(lifecycle, HeartbeatFailed(None), now_ms=201) == [Heartbeat(5, 9, False, False)]
    assert run(lifecycle, UNFENCED, now_ms=202) == []
    assert lifecycle.next_deadline_ms() == 2202


def test_a_registration_that_pauses_is_sent_to_a_new_controller_at_once() -> None:
    lifecycle = new()
    run(lifecycle, Started(), RegistrationFailed(None))
    assert run(lifecycle, ControllerMoved(), now_ms=1) == [Register()]


# --- the registration is lost ---------------------------------------------------------------------

TWIN = Registration(b"another process ", 12)
STALE = HeartbeatFailed(ErrorCode.STALE_BROKER_EPOCH)


def assert_over(lifecycle: BrokerLifecycle) -> None:
    assert lifecycle.state is BrokerState.SHUTTING_DOWN
    assert lifecycle.next_deadline_ms() is None
    assert run(lifecycle, TimerFired(), ContactLost(), MetadataReplayed(99, None), STALE) == []


@pytest.mark.parametrize("other", [TWIN, None], ids=["another process", "unregistered"])
def test_an_image_without_this_process_after_one_with_it_ends_it(
    other: Registration | None,
) -> None:
    """P16: the process registered under the id now may lead the same partitions."""
    lifecycle = running()
    lost = run(lifecycle, MetadataReplayed(12, None, other))
    assert lost == [LeadNothing(), RegistrationGone(other, True)]
    assert_over(lifecycle)


def test_replayed_registrations_of_earlier_incarnations_have_no_effect() -> None:
    """A start replays the whole log, with earlier incarnations and removals of the id."""
    lifecycle = new()
    old = (
        MetadataReplayed(1, None, Registration(b"a life before", 1)),
        MetadataReplayed(2, None),
        MetadataReplayed(3, None, Registration(b"the last life", 3)),
    )
    assert run(lifecycle, Started(), *old) == [Register()]
    assert run(lifecycle, Registered(5), *old) == []
    assert run(lifecycle, MetadataReplayed(4, None, Registration(b"the last life", 3))) == []
    assert run(lifecycle, MetadataReplayed(5, 5)) == [Heartbeat(5, 5, False, False)]


@pytest.mark.parametrize("answer_first", [True, False])
def test_a_snapshot_may_lead_past_the_own_registration_to_its_end(answer_first: bool) -> None:
    lifecycle = new()
    events: tuple[Event, ...] = (Registered(5), MetadataReplayed(20, None, TWIN))
    run(lifecycle, Started())
    lost = run(lifecycle, *(events if answer_first else events[::-1]))
    assert lost == [LeadNothing(), RegistrationGone(TWIN, True)]
    assert_over(lifecycle)


def test_a_registration_that_was_seen_and_is_gone_before_it_was_answered_ends_the_start() -> None:
    lifecycle = new()
    run(lifecycle, Started(), MetadataReplayed(9, 5))
    lost = run(lifecycle, MetadataReplayed(12, None, TWIN))
    assert lost == [LeadNothing(), RegistrationGone(TWIN, True)]
    assert run(lifecycle, Registered(5)) == []
    assert_over(lifecycle)


def test_the_same_process_under_another_epoch_has_lost_nothing() -> None:
    """Its first registration was accepted, and the answer was lost with that controller."""
    lifecycle = new()
    run(lifecycle, Started(), MetadataReplayed(4, 4), RegistrationFailed(None))
    assert run(lifecycle, Registered(9), MetadataReplayed(8, 4)) == []
    assert run(lifecycle, MetadataReplayed(9, 9)) == [Heartbeat(9, 9, False, False)]


def test_stale_epoch_ends_leadership_then_process_after_image() -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2000)
    assert run(lifecycle, STALE, now_ms=2001) == [LeadNothing()]
    # The process is not registered any more: later events cause neither a request nor a busy loop.
    assert run(lifecycle, ContactLost(), TimerFired(), now_ms=2002) == []
    assert lifecycle.next_deadline_ms() == 4001
    assert run(lifecycle, MetadataReplayed(10, 5), now_ms=2003) == []
    lost = run(lifecycle, MetadataReplayed(12, None, TWIN), now_ms=2004)
    assert lost == [LeadNothing(), RegistrationGone(TWIN, True)]
    assert_over(lifecycle)


def test_a_stale_epoch_that_no_image_explains_ends_the_process_after_one_interval() -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2000)
    run(lifecycle, STALE, now_ms=2001)
    assert run(lifecycle, TimerFired(), now_ms=4000) == []
    lost = run(lifecycle, TimerFired(), now_ms=4001)
    assert lost == [LeadNothing(), RegistrationGone(None, False)]
    assert_over(lifecycle)


def test_a_stale_epoch_ends_a_controlled_shutdown_without_waiting_for_its_deadline() -> None:
    lifecycle = running()
    run(lifecycle, ShutdownRequested(30_000), now_ms=0)
    assert run(lifecycle, STALE, now_ms=1) == [LeadNothing()]
    assert lifecycle.next_deadline_ms() == 2001
    assert run(lifecycle, TimerFired(), now_ms=2001)[-1] == RegistrationGone(None, False)
    assert_over(lifecycle)


@pytest.mark.parametrize("error", [None, *(set(ErrorCode) - {ErrorCode.STALE_BROKER_EPOCH})])
def test_no_other_answer_to_a_heartbeat_ends_anything(error: ErrorCode | None) -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2000)
    assert run(lifecycle, HeartbeatFailed(error), now_ms=2001) == []
    assert run(lifecycle, TimerFired(), now_ms=2051) == [Heartbeat(5, 9, False, False)]


# --- a registration without log directories -------------------------------------------------------


def lacking(offset: int = 9) -> MetadataReplayed:
    """Return an image whose level has log directories, while the registration names none."""
    return MetadataReplayed(offset, 5, lacks_directories=True)


def test_registration_without_directories_is_repeated_at_once() -> None:
    """KIP-858: metadata.version was raised on a running broker; the answer keeps the broker
    epoch."""
    lifecycle = running()
    assert run(lifecycle, lacking(), now_ms=100) == [Register()]
    assert run(lifecycle, Registered(5), now_ms=101) == [Heartbeat(5, 9, False, False)]
    assert run(lifecycle, MetadataReplayed(10, 5), UNFENCED, now_ms=102) == []
    assert run(lifecycle, TimerFired(), now_ms=2_102) == [Heartbeat(5, 10, False, False)]
    assert (lifecycle.state, lifecycle.broker_epoch) == (BrokerState.RUNNING, 5)


def test_registration_without_directories_waits_for_the_heartbeat_in_flight() -> None:
    lifecycle = running()
    run(lifecycle, TimerFired(), now_ms=2_000)
    assert run(lifecycle, lacking(), now_ms=2_001) == []
    assert run(lifecycle, UNFENCED, now_ms=2_002) == [Register()]


@pytest.mark.parametrize("error", [None, ErrorCode.INVALID_REGISTRATION, ErrorCode.NOT_CONTROLLER])
def test_failed_repetition_delays_no_heartbeat(error: ErrorCode | None) -> None:
    """There is one repetition for each heartbeat, whatever error the controller returns."""
    lifecycle = running()
    assert run(lifecycle, lacking(), now_ms=100) == [Register()]
    now_ms = 100.0
    for _ in range(3):
        failed = run(lifecycle, RegistrationFailed(error), now_ms=now_ms)
        assert failed == [Heartbeat(5, 9, False, False)]
        assert run(lifecycle, UNFENCED, lacking(), now_ms=now_ms) == []
        now_ms += 2_000
        assert run(lifecycle, TimerFired(), now_ms=now_ms) == [Register()]
    assert lifecycle.state is BrokerState.RUNNING


def test_fenced_broker_repeats_its_registration_too() -> None:
    lifecycle = new()
    run(lifecycle, Started(), Registered(5), MetadataReplayed(9, 5), FENCED)
    assert run(lifecycle, lacking(), now_ms=1) == [Register()]


def test_broker_in_controlled_shutdown_does_not_repeat_its_registration() -> None:
    """The next process registers the directory."""
    lifecycle = running()
    run(lifecycle, ShutdownRequested(30_000))
    assert run(lifecycle, lacking(), now_ms=1) == []
    run(lifecycle, FENCED, now_ms=2)
    assert run(lifecycle, TimerFired(), now_ms=100) == [Heartbeat(5, 9, False, True)]


def test_shutdown_during_a_repetition_is_requested_when_it_is_answered() -> None:
    lifecycle = running()
    assert run(lifecycle, lacking()) == [Register()]
    assert run(lifecycle, ShutdownRequested(30_000)) == []
    assert run(lifecycle, Registered(5)) == [Heartbeat(5, 9, False, True)]
