"""A fetcher: requests to a leader, fetch sessions, and backoff of partitions."""

from __future__ import annotations

import struct

import pytest

from broker.replication.fetching import fetcher
from broker.replication.fetching.fetcher import (
    NAMED_MAX,
    SHORT_WAIT_MS,
    Fetcher,
    Flush,
    Reset,
    Unforeseen,
)
from broker.replication.fetching.follower import reset_to
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.role import ReplicaRole
from protocol.errors import ErrorCode
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from testkit.memory.broker import batch, settle
from testkit.memory.replicas import SETTINGS, TOPIC, Cluster, answer_of
from testkit.records.batches import altered

WAIT_MS = 500


async def test_an_idle_partition_is_named_once_and_then_rests() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=3)
    request = c.request(2, 1)
    assert request is not None
    assert request.topics == []
    response = c.serve(1, request)
    assert response.responses == []
    c.take(2, 1, response)
    # A resting partition still gets appends, and its follower's caught-up time advances.
    c.clock.advance(500)
    c.fetch(2)
    resting = c.clock.monotonic_ms()
    c.clock.advance(100)
    c[1].append(b"b")
    remote = c[1].partition().remote[2]
    assert remote.caught_up_ms == resting
    c.fetch(2, times=2)
    assert c[2].values == [b"a", b"b"]
    assert c[1].high_watermark == 2


async def test_an_answer_for_a_partition_that_is_fetched_no_longer_touches_nothing() -> None:
    """Bug 6 (KAFKA-13207): a late response of the leader before is dropped."""
    c = Cluster()
    c.create(1, 2, 3)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c[1].append(b"x")
    c.change(1, 3, leader=3)  # 2 has not applied this change
    c[3].append(b"b")
    late = c.send(2, 1)
    c.catch_up(2)
    assert late is not None
    c.take(2, 1, late)
    assert c[2].values == [b"a"]
    # The same after removal and return of the replica: the response belongs to its earlier
    # incarnation.
    c.fetch(2, 3, times=2)
    stale = c.send(2, 3)
    partition = c[2].partition()
    c[2].unfollow(partition)
    c[2].follow(partition)
    assert stale is not None
    before = partition.log.log_end_offset
    c.take(2, 3, stale)
    assert partition.log.log_end_offset == before


async def test_errors_pause_a_partition_and_not_the_others() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.change(2, leader=1, isr=[1, 2])  # a new epoch that the leader does not know yet
    c.fetch(2)
    fetcher = c[2].fetchers[1]
    assert fetcher.failed_partitions == 1
    assert c.request(2, 1) is None
    c.catch_up()
    c.clock.advance(20)
    c.fetch(2)
    assert fetcher.failed_partitions == 0
    assert c[2].values == [b"a"]


async def test_pauses_grow_up_to_the_back_off() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.change(2, leader=1, isr=[1, 2])
    fetcher = c[2].fetchers[1]
    waits = []
    for _ in range(12):
        c.fetch(2)
        wake_ms = fetcher.wake_ms()
        assert wake_ms is not None
        waits.append(wake_ms - c.clock.monotonic_ms())
        c.clock.advance(waits[-1])
    assert waits[0] == 2, "a leader that is behind has its image soon"
    assert waits == sorted(waits)
    assert waits[-1] == 1000


async def test_fetcher_limits_requests_to_a_leader_with_older_metadata() -> None:
    """Ten thousand elections reach the leader later than its follower.

    The leader needs its time to apply them, not to send refusals.
    """
    c, many, each, step_ms = Cluster(2), 1000, 25, 5.0
    for broker in c.brokers.values():
        broker.create_topic(partitions=many, replicas=[1, 2], leader=1)
    c[2].fetchers[1] = fetcher = Fetcher(1, 2, SETTINGS)
    for partition in c[2].replicas:
        fetcher.follow(partition)
    _round_trips(c, 10)
    assert all(remote.log_end == 0 for p in c[1].replicas for remote in p.remote.values())
    for index in range(many):
        change = PartitionChangeRecord(topic_id=TOPIC, partition_id=index, leader=1)
        c.records.append(change)
    c.catch_up(2)
    named = refused = 0
    for first in range(0, many, each):  # the leader applies `each` more in each step
        for record in c.records[c[1].seen + first :][:each]:
            c[1].replay(record)
        c.clock.advance(step_ms)
        told = _round_trips(c, 2)
        named, refused = named + told[0], refused + told[1]
    for _ in range(40):
        c.clock.advance(step_ms)
        told = _round_trips(c, 2)
        named, refused = named + told[0], refused + told[1]
    assert fetcher.failed_partitions == 0
    assert named - refused == many, "each is served in its new epoch, and once"
    assert refused <= 0.75 * many, "and not twice as many"


def _round_trips(c: Cluster, times: int) -> tuple[int, int]:
    """Fetch `times` times. Returns: partitions that follower 2 named, and that leader 1 did not
    know."""
    behind, named, refused = ErrorCode.UNKNOWN_LEADER_EPOCH, 0, 0
    for _ in range(times):
        request = c.request(2, 1)
        if request is not None:
            response = c.serve(1, request)
            named += sum(len(topic.partitions) for topic in request.topics)
            refused += sum(p.error_code == behind for t in response.responses for p in t.partitions)
            c.take(2, 1, response)
    return named, refused


async def test_a_lost_connection_begins_a_new_session_and_ends_the_old_one() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=3)
    assert len(c[1].context.sessions) == 1
    c.request(2, 1)
    c[2].fetchers[1].lost(c.clock.monotonic_ms())
    assert c.request(2, 1) is None
    c.clock.advance(10)
    request = c.request(2, 1)
    assert request is not None
    assert (request.session_epoch, len(request.topics)) == (0, 1)
    assert request.session_id != 0
    c.take(2, 1, c.serve(1, request))
    assert len(c[1].context.sessions) == 1
    c[1].append(b"b")
    c.fetch(2)
    assert c[2].values == [b"a", b"b"]


async def test_a_leader_that_forgot_the_session_gets_a_full_request() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    for session in list(c[1].context.sessions):
        c[1].context.sessions.forget(session.session_id)
    c.fetch(2)  # FETCH_SESSION_ID_NOT_FOUND
    c[1].append(b"a")
    c.fetch(2)
    assert c[2].values == [b"a"]


async def test_a_second_request_goes_out_for_partitions_that_were_added() -> None:
    """A new leader must receive its followers' fetches at once, not at the end of an idle fetch."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    first = c.request(2, 1)
    assert first is not None
    assert c.request(2, 1) is None
    c.change(leader=1)  # the same leader in a new epoch
    second = c.request(2, 1)
    assert second is not None
    assert second.session_epoch == first.session_epoch + 1
    assert c.request(2, 1) is None
    c[1].append(b"a")
    answers = [c.serve(1, first), c.serve(1, second)]
    for answer in answers:
        c.take(2, 1, answer)
    assert c[2].values == [b"a"]


async def test_a_topic_that_flushes_is_fetched_on_when_it_is_on_the_disk() -> None:
    c = Cluster(2)
    c.records.append(
        ConfigRecord(resource_type=2, resource_name="t", name="flush.messages", value="1")
    )
    c.create(1, 2)
    c[1].append(b"a")
    await settle()
    (effect,) = c.fetch(2)
    assert isinstance(effect, Flush)
    assert c.request(2, 1) is None
    assert c[1].partition().remote[2].log_end == 0
    await c[2].log.flush()
    c[2].fetchers[1].resume(effect.partition)
    c.fetch(2)
    assert c[1].partition().remote[2].log_end == 1


async def test_a_flush_that_ends_does_not_wait_for_an_idle_fetch() -> None:
    """Regression: a follower that flushes after each batch never caught up.

    While one partition flushed, the next fetch waited at the leader for the other partitions, so
    that each batch took as long as an idle fetch.
    """
    c = Cluster(2)
    for broker in c.brokers.values():
        broker.create_topic(
            partitions=2, replicas=[1, 2], leader=1, configs={"flush.messages": "1"}
        )
    c[1].append(b"a")
    await settle()
    (flush,) = c.fetch(2)
    assert isinstance(flush, Flush)
    idle = c.request(2, 1)
    assert idle is not None and c.request(2, 1) is None
    await c[2].log.flush()
    c[2].fetchers[1].resume(flush.partition)
    second = c.request(2, 1)
    assert second is not None, "it waits for the idle fetch"
    (topic,) = second.topics
    (named,) = topic.partitions
    assert (named.partition, named.fetch_offset) == (0, 1)


async def test_without_a_session_a_flush_that_ends_waits_for_a_moment() -> None:
    """The leader has no room for sessions, so no second request can be sent.

    The first request omits the flushing partition, and must not wait as long as an idle fetch.
    """
    c = Cluster(2, **{"max.incremental.fetch.session.cache.slots": "0"})
    for broker in c.brokers.values():
        broker.create_topic(
            partitions=2, replicas=[1, 2], leader=1, configs={"flush.messages": "1"}
        )
    c[2].fetchers[1].settings = SETTINGS._replace(wait_max_ms=WAIT_MS)
    c[1].append(b"a")
    await settle()
    (flush,) = c.fetch(2)
    assert isinstance(flush, Flush)
    idle = c.request(2, 1)
    assert idle is not None
    assert idle.session_id == 0
    assert idle.max_wait_ms == SHORT_WAIT_MS
    await c[2].log.flush()
    c[2].fetchers[1].resume(flush.partition)
    assert c.request(2, 1) is None
    c.take(2, 1, c.serve(1, idle.replace(max_wait_ms=0)))
    whole = c.request(2, 1)
    assert whole is not None
    assert whole.max_wait_ms == WAIT_MS


async def test_fetch_offset_out_of_the_leaders_range_returns_a_reset() -> None:
    c = Cluster(2)
    c.create(1, 2)
    for value in (b"a", b"b", b"c"):
        c[1].append(value)
    partition = c[1].partition()
    c[1].replicas.carry_out(partition, maybe_advance_high_watermark(partition))
    c.change(isr=[1])
    c[1].log.advance_log_start(2)
    (effect,) = c.fetch(2)
    assert isinstance(effect, Reset)
    assert effect.error is ErrorCode.OFFSET_OUT_OF_RANGE
    reset_to(effect.partition, 2, 3)
    assert (c[2].log.log_start_offset, c[2].log.log_end_offset) == (2, 2)
    c[2].fetchers[1].resume(effect.partition)
    c.fetch(2)
    assert c[2].values == [b"c"]


async def test_a_deleted_topic_is_fetched_no_longer() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    partition = c[2].partition()
    c.records.append(RemoveTopicRecord(topic_id=TOPIC))
    c.catch_up()
    assert partition.role is ReplicaRole.DELETED
    assert len(c[2].fetchers[1]) == 0
    assert c[2].replicas.get("t", 0) is None


async def test_many_partitions_are_named_in_several_requests() -> None:
    c = Cluster(2)
    fetcher = Fetcher(1, 2, SETTINGS._replace(wait_max_ms=WAIT_MS))
    c[2].fetchers[1] = fetcher
    many = NAMED_MAX + 20
    for broker in c.brokers.values():
        broker.create_topic(partitions=many, replicas=[1, 2], leader=1)
    first = c.request(2, 1)
    assert first is not None
    assert len(first.topics[0].partitions) == NAMED_MAX
    assert c.request(2, 1) is None  # no session yet
    assert first.max_wait_ms == 0, "nobody hears of the others while it waits"
    c.take(2, 1, c.serve(1, first))
    second = c.request(2, 1)
    assert second is not None
    assert len(second.topics[0].partitions) == 20
    assert second.max_wait_ms == WAIT_MS
    second.max_wait_ms = 0
    c.take(2, 1, c.serve(1, second))
    assert all(remote.log_end == 0 for p in c[1].replicas for remote in p.remote.values())


async def test_without_room_for_a_session_every_request_names_all() -> None:
    c = Cluster(2, max_incremental_fetch_session_cache_slots="0")
    c[1].context.sessions._slots_max = 0
    c.create(1, 2)
    c[1].append(b"a")
    for _ in range(3):
        request = c.request(2, 1)
        assert request is not None
        assert (request.session_epoch, len(request.topics)) == (0, 1)
        c.take(2, 1, c.serve(1, request))
    assert c[2].values == [b"a"]
    assert c[1].high_watermark == 1


async def test_fetcher_requests_a_new_session_once() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    c[2].fetchers[1].lost(c.clock.monotonic_ms())
    c.clock.advance(10)
    assert c.request(2, 1) is not None
    c.change(leader=1)  # urgent, but there is no session yet that could carry it
    assert c.request(2, 1) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 1},
        {"batch_length": 3},
        {"base_offset": 2**63 - 1},
        {"last_offset_delta": -1},
        {"leader_epoch": -1},
    ],
)
async def test_a_batch_that_cannot_be_appended_pauses_its_partition(fields: dict[str, int]) -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2)
    assert c.request(2, 1) is not None
    hostile = altered(batch(b"b"), **({"base_offset": 1, "leader_epoch": 0} | fields))
    assert c.take(2, 1, answer_of(c, hostile)) == []
    assert c[2].fetchers[1].failed_partitions == 1
    assert c[2].values == [b"a"]
    c[1].append(b"b")
    c.clock.advance(2000)
    c.fetch(2, times=2)
    assert c[2].values == [b"a", b"b"]


async def test_unforeseen_error_in_fetched_data_pauses_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Cluster(2)
    c.create(1, 2)
    assert c.request(2, 1) is not None
    error = struct.error("int too large")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(fetcher, "append_fetched", fail)
    (effect,) = c.take(2, 1, answer_of(c, b"bytes"))
    assert effect == Unforeseen(c[2].partition(), error, b"bytes")
    assert c[2].fetchers[1].failed_partitions == 1
