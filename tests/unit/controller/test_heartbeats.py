from __future__ import annotations

from immutables import Map

from controller.heartbeats import Heartbeats, SessionTimeouts
from metalog.image.values import BrokerImage

TIMEOUT_MS = 100.0
TIMEOUTS = SessionTimeouts(TIMEOUT_MS)
SHORTENED = SessionTimeouts(TIMEOUT_MS, connection_loss_ms=10.0)


def broker(broker_id: int, *, epoch: int = 1, fenced: bool = False, **fields: bool) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=epoch,
        incarnation_id=bytes(16),
        endpoints=(),
        features=Map(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=fields.get("leaving", False),
        directories=(),
    )


def test_expiry_and_the_next_one() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1), broker(2), broker(3, fenced=True)], 1000.0)
    assert heartbeats.next_expiry_ms(TIMEOUTS) == 1100.0
    heartbeats.touch(2, epoch=1, metadata_offset=5, monotonic_ms=1050.0)
    assert heartbeats.expired(1099.9, TIMEOUTS) == frozenset()
    assert heartbeats.expired(1100.0, TIMEOUTS) == {1}
    heartbeats.follow([broker(1, fenced=True), broker(2)], 1100.0)
    assert heartbeats.expired(1149.0, TIMEOUTS) == frozenset()
    assert heartbeats.next_expiry_ms(TIMEOUTS) == 1150.0
    assert not heartbeats.has_session(3, 1100.0, TIMEOUT_MS)


def test_session_ends_exactly_at_its_timeout() -> None:
    """A session ends exactly at its timeout, however elapsed time is rounded.

    Otherwise silence would count as a lost connection.
    """
    last_ms, timeout_ms = 15403.16669640114, 3000
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], last_ms)
    end_ms = heartbeats.next_expiry_ms(SessionTimeouts(timeout_ms))
    assert end_ms is not None
    assert end_ms - last_ms < timeout_ms
    assert heartbeats.expired(end_ms, SessionTimeouts(timeout_ms)) == {1}
    assert not heartbeats.has_session(1, end_ms, timeout_ms)


def test_only_the_registered_life_counts() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1, epoch=7)], 0.0)
    heartbeats.touch(1, epoch=6, metadata_offset=5, monotonic_ms=50.0)
    heartbeats.touch(2, epoch=1, metadata_offset=5, monotonic_ms=50.0)
    assert heartbeats.next_expiry_ms(TIMEOUTS) == 0.0 + TIMEOUT_MS
    heartbeats.follow([broker(1, epoch=8)], 60.0)
    assert heartbeats.next_expiry_ms(TIMEOUTS) == 60.0 + TIMEOUT_MS
    assert heartbeats.lowest_active_metadata_offset([broker(1, epoch=8)]) == -1


def test_offsets_and_contacts_never_go_back() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 10.0)
    heartbeats.touch(1, epoch=1, metadata_offset=9, monotonic_ms=20.0)
    heartbeats.touch(1, epoch=1, metadata_offset=3, monotonic_ms=15.0)
    assert heartbeats.next_expiry_ms(TIMEOUTS) == 20.0 + TIMEOUT_MS
    assert heartbeats.lowest_active_metadata_offset([broker(1)]) == 9


def test_the_lowest_offset_is_of_those_who_stay() -> None:
    heartbeats = Heartbeats()
    brokers = [broker(1), broker(2, fenced=True), broker(3, leaving=True)]
    heartbeats.reset(brokers, 0.0)
    heartbeats.touch(1, epoch=1, metadata_offset=9, monotonic_ms=1.0)
    assert heartbeats.lowest_active_metadata_offset(brokers) == 9
    assert heartbeats.lowest_active_metadata_offset(brokers[1:]) is None


def test_shutdown_begins_where_its_last_record_stands() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 0.0)
    assert heartbeats.shutdown_offset(1) is None
    for offset, expected in ((5, 5), (3, 5), (8, 8)):
        heartbeats.begin_shutdown(1, offset)
        assert heartbeats.shutdown_offset(1) == expected
    heartbeats.begin_shutdown(9, 1)
    assert heartbeats.shutdown_offset(9) is None


def test_a_shutdown_of_an_earlier_registration_leaves_the_present_one_alone() -> None:
    """P16: the controller answers the last heartbeat at its commit, perhaps after a new
    registration."""
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 0.0)
    heartbeats.begin_shutdown(1, 5, epoch=0)
    assert heartbeats.shutdown_offset(1) is None
    heartbeats.begin_shutdown(1, 5, epoch=1)
    assert heartbeats.shutdown_offset(1) == 5


def contact_over(heartbeats: Heartbeats, connection: object, monotonic_ms: float) -> bool:
    return heartbeats.touch(
        1, epoch=1, metadata_offset=0, monotonic_ms=monotonic_ms, connection=connection
    )


def test_a_lost_connection_shortens_the_wait() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1), broker(2)], 0.0)
    assert contact_over(heartbeats, "first", 50.0)
    assert not contact_over(heartbeats, "first", 60.0), "known already"
    heartbeats.touch(2, epoch=1, metadata_offset=0, monotonic_ms=60.0)
    assert heartbeats.connection_lost(1, "first", 65.0)
    assert heartbeats.next_expiry_ms(SHORTENED) == 75.0
    assert heartbeats.expired(74.9, SHORTENED) == frozenset()
    assert heartbeats.expired(75.0, SHORTENED) == {1}
    assert heartbeats.expired(75.0, TIMEOUTS) == frozenset(), "off by default"


def test_a_heartbeat_over_a_new_connection_calls_it_off() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 0.0)
    contact_over(heartbeats, "first", 50.0)
    heartbeats.connection_lost(1, "first", 55.0)
    assert contact_over(heartbeats, "second", 60.0)
    assert heartbeats.next_expiry_ms(SHORTENED) == 160.0


def test_loss_of_older_connection_is_ignored() -> None:
    """The broker had opened another connection before the controller saw the first one close."""
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 0.0)
    contact_over(heartbeats, "first", 50.0)
    contact_over(heartbeats, "second", 51.0)
    assert not heartbeats.connection_lost(1, "first", 52.0)
    assert not heartbeats.connection_lost(7, "first", 52.0)
    assert heartbeats.next_expiry_ms(SHORTENED) == 151.0


def test_a_late_loss_does_not_lengthen_the_session() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 0.0)
    contact_over(heartbeats, "first", 0.0)
    heartbeats.connection_lost(1, "first", 99.0)
    assert heartbeats.next_expiry_ms(SHORTENED) == 100.0


def test_a_new_registration_forgets_the_lost_connection() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 0.0)
    contact_over(heartbeats, "first", 10.0)
    heartbeats.connection_lost(1, "first", 11.0)
    heartbeats.follow([broker(1, epoch=2)], 12.0)
    assert heartbeats.next_expiry_ms(SHORTENED) == 112.0


TAKING_OVER = SessionTimeouts(TIMEOUT_MS, connection_loss_ms=10.0, first_ms=40.0)


def test_broker_without_heartbeat_since_takeover_has_first_timeout() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1), broker(2)], 1000.0)
    assert heartbeats.next_expiry_ms(TAKING_OVER) == 1040.0
    assert heartbeats.next_expiry_ms(TIMEOUTS) == 1100.0, "where it is off: the whole session"
    heartbeats.touch(2, epoch=1, metadata_offset=0, monotonic_ms=1039.0)
    assert heartbeats.expired(1040.0, TAKING_OVER) == {1}
    heartbeats.follow([broker(1, fenced=True), broker(2)], 1040.0)
    assert heartbeats.next_expiry_ms(TAKING_OVER) == 1139.0, "who has spoken has its session"


def test_the_first_timeout_is_never_longer_than_the_session() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 1000.0)
    assert heartbeats.next_expiry_ms(SessionTimeouts(TIMEOUT_MS, 10.0, 2 * TIMEOUT_MS)) == 1100.0


def test_a_registration_after_the_takeover_is_a_sign_of_life() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1), broker(2)], 1000.0)
    heartbeats.follow([broker(1, epoch=2), broker(2)], 1010.0)
    assert heartbeats.expired(1040.0, TAKING_OVER) == {2}
    assert heartbeats.expired(1109.0, TAKING_OVER) == {2}
    assert heartbeats.expired(1110.0, TAKING_OVER) == {1, 2}


def test_a_process_that_has_ended_counts_as_a_closed_connection() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1), broker(2)], 1000.0)
    assert heartbeats.process_gone(1, 1005.0)
    assert not heartbeats.process_gone(1, 1008.0), "the first sight counts"
    assert not heartbeats.process_gone(3, 1005.0), "a controller, no broker"
    assert heartbeats.expired(1014.9, TAKING_OVER) == frozenset()
    assert heartbeats.expired(1015.0, TAKING_OVER) == {1}
    # The broker lives: perhaps only the controller in its process was late to listen.
    heartbeats.touch(1, epoch=1, metadata_offset=0, monotonic_ms=1014.0)
    assert heartbeats.expired(1030.0, TAKING_OVER) == frozenset()
    assert not heartbeats.process_gone(1, 1031.0), "who has spoken is judged by its connection"
