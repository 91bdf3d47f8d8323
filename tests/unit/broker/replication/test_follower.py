"""Followers: what they take over, where they cut, and what a fetch proves.

Each known bug of Apache Kafka that these rules guard against is named (reliability: bug list).
"""

from __future__ import annotations

import asyncio
import struct

import pytest

from broker.replication import fetcher
from broker.replication.fetcher import NAMED_MAX, Fetcher, Flush, Reset, Unforeseen
from broker.replication.fetcher_connections import FetcherContext, FetcherLink
from broker.replication.follower import reset_to
from broker.replication.offset_resets import ListOffsetsReset
from broker.replication.replica_manager import AT_ONCE_MAX, Backlog
from broker.replication.replica_role import ReplicaRole
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from runtime.tasks import Supervisor
from testkit.memory.broker import batch, settle
from testkit.memory.replicas import SETTINGS, TOPIC, Cluster
from testkit.records.batches import altered

WAIT_MS = 500


async def test_records_reach_followers_and_the_high_watermark_follows() -> None:
    c = Cluster()
    c.create(1, 2, 3)
    waiting = c[1].append(b"a", b"b", acks=-1)
    c.fetch(2)
    assert c[2].values == [b"a", b"b"]
    assert (c[1].high_watermark, c[2].high_watermark) == (0, 0)
    c.fetch(3)
    c.fetch(2)
    assert not waiting.done()
    c.fetch(3)
    assert c[1].high_watermark == 2
    answered = (await waiting).responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NONE
    c.fetch(2)
    c.fetch(3)
    assert (c[2].high_watermark, c[3].high_watermark) == (2, 2)


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
    # What rests is still heard of: an append, and the follower's time.
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


async def test_logs_that_parted_in_a_fast_fail_over_are_cut_at_the_shared_epoch() -> None:
    """Bug 1: KAFKA-6361, KIP-279."""
    c = Cluster()
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"shared")
    c.fetch(2, times=2)
    # 1 appends and dies; 2 leads, appends and dies before 1 fetched; 1 leads again in epoch 2.
    c[1].append(b"only on 1", b"and this")
    c.change(leader=2)
    c[2].append(b"only on 2")
    c.change(leader=1)
    c[1].append(b"of epoch 2")
    c.fetch(2, times=5)
    assert c[2].values == c[1].values == [b"shared", b"only on 1", b"and this", b"of epoch 2"]
    assert c[2].log.epochs.entries == [(0, 0), (2, 3)]


async def test_a_replica_behind_the_leader_epochs_start_does_not_join() -> None:
    """Bug 2: KAFKA-7128."""
    c = Cluster()
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"a")
    c.fetch(2)  # 2 has it, and nobody knows that yet: the high watermark is 0 everywhere
    c.change(leader=2)
    assert c[2].high_watermark == 0
    assert c[2].partition().leader_epoch_start == 1
    c.fetch(3, 2)
    # Offset 0 is the high watermark that 2 knows, and below what may have been acknowledged.
    assert c[2].proposals == []
    c.fetch(3, 2)
    assert [proposal.broker_ids for _, proposal in c[2].proposals] == [{1, 2, 3}]


async def test_a_diverging_fetch_is_no_progress() -> None:
    """Bug 6: KAFKA-13141."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c[1].append(b"x", b"y")
    c.change(leader=2)
    c[2].append(b"b")
    # 1 says that it ends at 3, beyond 2's end: no high watermark may come of it.
    response = c.send(1, 2)
    assert response is not None
    assert response.responses[0].partitions[0].diverging_epoch.end_offset == 1
    assert c[2].partition().remote[1].log_end == -1
    assert c[2].high_watermark == 1
    c.take(1, 2, response)
    c.fetch(1, 2, times=2)
    assert c[1].values == [b"a", b"b"]
    assert c[2].high_watermark == 2


async def test_an_answer_for_a_partition_that_is_fetched_no_longer_touches_nothing() -> None:
    """Bug 6: KAFKA-13207."""
    c = Cluster()
    c.create(1, 2, 3)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c[1].append(b"x")
    c.change(1, 3, leader=3)  # 2 has not heard of it
    c[3].append(b"b")
    late = c.send(2, 1)
    c.catch_up(2)
    assert late is not None
    c.take(2, 1, late)
    assert c[2].values == [b"a"]
    # The same with one that was taken away and given back: the answer is of an earlier life.
    c.fetch(2, 3, times=2)
    stale = c.send(2, 3)
    partition = c[2].partition()
    c[2].unfollow(partition)
    c[2].follow(partition)
    assert stale is not None
    before = partition.log.log_end_offset
    c.take(2, 3, stale)
    assert partition.log.log_end_offset == before


async def test_a_follower_cuts_before_it_raises_its_high_watermark() -> None:
    """Bug 7: KAFKA-14704."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.fetch(2)
    assert c[2].high_watermark == 1
    c.change(leader=2)
    c[2].append(b"wrong", b"wrong")
    c[2].append(b"wrong")
    c.change(leader=1, isr=[1])
    c[1].append(b"b", b"c")
    assert c[1].high_watermark == 3
    response = c.send(2, 1)
    assert response is not None
    data = response.responses[0].partitions[0]
    assert data.diverging_epoch.end_offset == 1
    assert data.high_watermark == 3
    c.take(2, 1, response)
    assert c[2].high_watermark == 1  # not 3 over records that are not the leader's
    assert c[2].values == [b"a"]
    c.fetch(2, times=2)
    assert c[2].values == [b"a", b"b", b"c"]


async def test_a_fetch_without_records_does_not_begin_an_endless_truncation() -> None:
    """Bug 8: KAFKA-15510: the last fetched epoch is that of the last record."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.change(leader=2)  # an epoch in which 2 writes nothing
    c.change(leader=1)  # and one in which 1 writes nothing
    for _ in range(4):
        request = c.request(2, 1)
        assert request is not None
        for topic in request.topics:
            assert topic.partitions[0].last_fetched_epoch == 0
        response = c.serve(1, request)
        for answered in response.responses:
            assert answered.partitions[0].diverging_epoch.epoch == -1
        c.take(2, 1, response)
    assert c[2].values == [b"a"]


async def test_the_log_start_follows_the_leader() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a", b"b", b"c")
    c.fetch(2, times=3)
    c[1].log.advance_log_start(2)
    c[1].partition().log_start_moved()
    c.fetch(2)
    assert c[2].log.log_start_offset == 2
    c.fetch(2)
    assert c[1].partition().low_watermark == 2


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
    assert waits[0] == 10
    assert waits == sorted(waits)
    assert waits[-1] == 1000


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
    """A new leader must hear of its followers at once, not when an idle fetch ends."""
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


async def test_a_fetch_that_waits_is_answered_when_its_session_is_evicted() -> None:
    """Its follower would hear of appends only when the wait is over."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    request = c.request(2, 1)
    assert request is not None
    request.max_wait_ms = 500
    waiting = c[1].call(request)
    (session,) = c[1].context.sessions
    c[1].context.sessions.forget(session.session_id)
    c[1].append(b"a")
    await settle()
    assert waiting.done()
    c.take(2, 1, await waiting)
    c.fetch(2, times=2)  # refused, and begun anew
    assert c[2].values == [b"a"]


async def test_a_sessions_next_fetch_ends_the_wait_of_the_one_before() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    first = c.request(2, 1)
    assert first is not None
    first.max_wait_ms = 500
    waiting = c[1].call(first)
    c.change(leader=1)
    second = c.request(2, 1)
    assert second is not None
    second.max_wait_ms = 500
    waits_on = c[1].call(second)
    await settle()
    assert waiting.done()
    assert (await waiting).responses == []
    c[1].append(b"a")
    await settle()
    c.take(2, 1, await waiting)
    c.take(2, 1, await waits_on)
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


async def test_an_offset_that_the_leader_does_not_have_asks_for_a_reset() -> None:
    c = Cluster(2)
    c.create(1, 2)
    for value in (b"a", b"b", b"c"):
        c[1].append(value)
    c[1].partition().maybe_advance_high_watermark()
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


async def test_a_reset_cuts_what_the_leader_never_had() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c[1].append(b"b")
    c.fetch(2, times=3)
    partition = c[2].partition()
    assert partition.log.high_watermark == 2
    reset_to(partition, 0, 1)
    assert c[2].values == [b"a"]
    assert partition.counters.truncations_below_high_watermark == 1


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


async def test_many_roles_change_in_slices_by_the_newest_image() -> None:
    c = Cluster(2)
    many = AT_ONCE_MAX + 5
    c[1].create_topic(partitions=many, replicas=[1, 2], leader=1)
    c[1].replicas.on_backlog(lambda: None)
    c[1].replay(
        *(
            PartitionChangeRecord(topic_id=TOPIC, partition_id=index, leader=2)
            for index in range(many)
        )
    )
    assert sum(p.is_leader for p in c[1].replicas) == 5
    c[1].replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=many - 1, leader=1))
    c[1].advance()
    assert [p.index for p in c[1].replicas if p.is_leader] == [many - 1]


async def test_a_new_session_is_asked_for_once() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    c[2].fetchers[1].lost(c.clock.monotonic_ms())
    c.clock.advance(10)
    assert c.request(2, 1) is not None
    c.change(leader=1)  # urgent, but there is no session yet that could carry it
    assert c.request(2, 1) is None


def test_partitions_to_lead_have_their_turn_first() -> None:
    backlog = Backlog()
    backlog.add((TOPIC, 0), urgent=False)
    backlog.add((TOPIC, 1), urgent=False)
    backlog.add((TOPIC, 2), urgent=True)
    backlog.add((TOPIC, 1), urgent=True)
    backlog.add((TOPIC, 2), urgent=False)
    assert [backlog.take()[1] for _ in range(len(backlog))] == [2, 1, 0]


def answer_of(c: Cluster, records: bytes, index: int = 0) -> FetchResponse:
    """What a leader may say whose bytes nobody checked."""
    data = FetchResponse.PartitionData(
        partition_index=index, high_watermark=1, log_start_offset=0, records=records
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC, partitions=[data])
    return FetchResponse(responses=[topic], session_id=1)


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


async def test_what_nobody_foresaw_in_an_answer_pauses_its_partition(
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


class OneAnswer:
    """A connection that is not there any more, or is."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def link_of(c: Cluster, supervisor: Supervisor) -> FetcherLink:
    context = FetcherContext(
        node_id=2,
        endpoint=lambda _: None,
        broker_epoch=lambda: 1,
        clock=c.clock,
        supervisor=supervisor,
        flusher=c[2].context.flusher,
        resets=ListOffsetsReset(2),
        storage_failed=c[2].replicas.storage_failed,
        timeout_ms=1000,
        throttle=c[2].context.throttles.fetching,
    )
    return FetcherLink(c[2].fetchers[1], context, 0)


async def test_an_answer_that_cannot_be_taken_over_ends_the_session_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Cluster(2)
    c.create(1, 2)
    supervisor = Supervisor(lambda name, error: pytest.fail(name))
    link = link_of(c, supervisor)
    assert c.request(2, 1) is not None
    connection = OneAnswer()
    link._connection = connection  # type: ignore[assignment]
    done: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    done.set_result(answer_of(c, b""))

    def fail(*_: object) -> list[object]:
        raise KeyError(7)

    monkeypatch.setattr(link.fetcher, "answered", fail)
    link._answered(connection, done)  # type: ignore[arg-type]
    assert connection.aborted and supervisor.survived == {"fetch answer": 1}
    assert link.fetcher.in_flight == 0 and link.fetcher.counters.failed_requests == 1
    link.close()
    await supervisor.close()
