from __future__ import annotations

from immutables import Map

from controller.heartbeats import Heartbeats
from metalog.image.values import BrokerImage

TIMEOUT_MS = 100.0


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
    assert heartbeats.next_expiry_ms(TIMEOUT_MS) == 1100.0
    heartbeats.touch(2, epoch=1, metadata_offset=5, monotonic_ms=1050.0)
    assert heartbeats.expired(1099.9, TIMEOUT_MS) == frozenset()
    assert heartbeats.expired(1100.0, TIMEOUT_MS) == {1}
    heartbeats.follow([broker(1, fenced=True), broker(2)], 1100.0)
    assert heartbeats.expired(1149.0, TIMEOUT_MS) == frozenset()
    assert heartbeats.next_expiry_ms(TIMEOUT_MS) == 1150.0
    assert heartbeats.last_contact_ms(3) is None


def test_only_the_registered_life_counts() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1, epoch=7)], 0.0)
    heartbeats.touch(1, epoch=6, metadata_offset=5, monotonic_ms=50.0)
    heartbeats.touch(2, epoch=1, metadata_offset=5, monotonic_ms=50.0)
    assert heartbeats.last_contact_ms(1) == 0.0
    heartbeats.follow([broker(1, epoch=8)], 60.0)
    assert heartbeats.last_contact_ms(1) == 60.0
    assert heartbeats.lowest_active_metadata_offset([broker(1, epoch=8)]) == -1


def test_offsets_and_contacts_never_go_back() -> None:
    heartbeats = Heartbeats()
    heartbeats.reset([broker(1)], 10.0)
    heartbeats.touch(1, epoch=1, metadata_offset=9, monotonic_ms=20.0)
    heartbeats.touch(1, epoch=1, metadata_offset=3, monotonic_ms=15.0)
    assert heartbeats.last_contact_ms(1) == 20.0
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
