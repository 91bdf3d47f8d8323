"""Throttles of replicas outside the ISR (KIP-73)."""

from __future__ import annotations

from broker.replication.fetching.fetcher import Fetcher
from broker.replication.throttle import ReplicationThrottle, ReplicationThrottles, throttles
from protocol.metadata.config_record import ConfigRecord
from testkit.memory.replicas import SETTINGS, Cluster


def throttled(c: Cluster, key: str, value: str) -> None:
    c.records.append(ConfigRecord(resource_type=2, resource_name="t", name=key, value=value))


def test_a_list_names_replicas_or_all() -> None:
    assert throttles(["*"], 3, 1)
    assert throttles(["0:1", "3:2"], 3, 2)
    assert not throttles(["0:1", "3:2"], 3, 1)
    assert not throttles([], 3, 1)


def test_the_brokers_own_rate_wins() -> None:
    both = ReplicationThrottles()
    both.set_rates(
        {"leader.replication.throttled.rate": "5"},
        {"leader.replication.throttled.rate": "6", "follower.replication.throttled.rate": "7"},
    )
    assert (both.sending.allowed, both.fetching.allowed) == (5, 7)
    both.set_rates({}, {})
    assert both.sending.pause_ms(0.0) == 0.0


async def test_a_leader_sends_no_more_than_the_rate_to_those_out_of_the_isr() -> None:
    c = Cluster()
    throttled(c, "leader.replication.throttled.replicas", "*")
    c.create(1, 2, 3, isr=[1, 2])
    sending = c[1].context.throttles.sending
    sending.allowed = 1000
    sending.record(1_000_000, c.clock.monotonic_ms())
    c[1].append(b"a")
    c.fetch(2)
    c.fetch(3)
    assert c[2].values == [b"a"]  # in the ISR: never throttled
    assert c[3].values == []
    c.clock.advance(60_000)
    c.fetch(3)
    assert c[3].values == [b"a"]
    assert sending.per_second(c.clock.monotonic_ms()) > 0


async def test_a_follower_out_of_the_isr_pauses_above_its_rate() -> None:
    c = Cluster(2)
    throttled(c, "follower.replication.throttled.replicas", "0:2")
    throttle = ReplicationThrottle(11, 1000.0)
    throttle.allowed = 10
    c[2].fetchers[1] = Fetcher(1, 2, SETTINGS, throttle)
    c.create(1, 2, isr=[1])
    c[1].append(b"a" * 500)
    c.fetch(2)
    assert c.request(2, 1) is None
    wake_ms = c[2].fetchers[1].wake_ms()
    assert wake_ms is not None
    c.clock.advance(wake_ms - c.clock.monotonic_ms())
    c[1].append(b"b")
    c.fetch(2)
    assert len(c[2].values) == 2
    assert c[2].fetchers[1].failed_partitions == 0
