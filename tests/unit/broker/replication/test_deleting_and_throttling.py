"""DeleteRecords waits for followers; throttles hold back those that are out of the ISR (KIP-73)."""

from __future__ import annotations

from typing import Any

from broker.coordinators.replicated_log import ReplicatedCoordinatorLog
from broker.replication.fetcher import Fetcher
from broker.replication.throttle import ReplicationThrottle, ReplicationThrottles, throttles
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.metadata.config_record import ConfigRecord
from testkit.memory.broker import settle
from testkit.memory.replicas import SETTINGS, Cluster


def delete(c: Cluster, offset: int) -> Any:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])
    return c[1].call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))


def result(response: Any) -> tuple[int, int]:
    data = response.topics[0].partitions[0]
    return data.error_code, data.low_watermark


async def test_deleting_is_answered_when_all_in_sync_replicas_have_done_it() -> None:
    c = Cluster()
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"a", b"b", b"c")
    c.fetch(2, times=2)
    waiting = delete(c, 2)
    assert not waiting.done()
    c.fetch(2)  # hears of it
    assert c[2].log.log_start_offset == 2
    c.fetch(2)  # tells of it
    assert result(await waiting) == (ErrorCode.NONE, 2)
    assert result(delete(c, 1)) == (ErrorCode.NONE, 2)


async def test_deleting_does_not_wait_for_a_member_that_leaves() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    waiting = delete(c, 1)
    c.change(isr=[1])
    assert result(await waiting) == (ErrorCode.NONE, 1)


async def test_deleting_times_out_and_fails_with_leadership() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    waiting = delete(c, 1)
    c.clock.advance(1005)
    c[1].waits.purgatory.expire(c.clock.monotonic_ms())
    assert result(await waiting) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    waiting = delete(c, 1)
    c.change(leader=2)
    assert result(await waiting) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_coordinator_shows_nothing_that_is_not_committed() -> None:
    c = Cluster(2)
    c.create(1, 2)
    log = ReplicatedCoordinatorLog(
        "t", replicas=c[1].replicas, metadata=c[1].metadata, creator=c[1].creator
    )
    log.append(0, [(b"k", b"v")], 5)
    rows = log.read_all(0)
    assert (await anext(rows))[1] == b"k"
    ended = c[1].supervisor.spawn("read on", anext(rows, None))  # type: ignore[arg-type]
    await settle()
    assert not ended.done()
    c.fetch(2, times=2)
    assert await ended is None


# --- throttles ----------------------------------------------------------------------------------


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
    assert c[2].values == [b"a"]  # in the ISR: never held back
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
