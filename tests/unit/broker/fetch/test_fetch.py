"""Fetch: visibility, limits, waiting, and the partitions that a session omits."""

from __future__ import annotations

import gc
import random
from typing import Any
from unittest import mock

import pytest

from broker.fetch.consumer import MOVED_HERE_MS, MOVED_WAIT_MS
from broker.fetch.running import RunningFetch
from broker.replication.reading.replica_selector import RACK_AWARE
from broker.replication.waiting.purgatory import TICK_MS
from protocol.batch.header import iter_batches
from protocol.codec import decode
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from testkit.memory.broker import (
    NODE,
    OTHER,
    Harness,
    Peer,
    batch,
    fetch_request,
    settle,
    topic_id,
)
from testkit.memory.replicas import Cluster
from tests.unit.broker.fetch.fetched import values


def fill(h: Harness, *batches: bytes, **fields: Any) -> None:
    for records in batches:
        assert h.produce(records, **fields).error_code == 0


async def test_a_fetch_returns_batches_with_their_offsets_and_bounds() -> None:
    h = Harness()
    h.create_topic()
    fill(h, batch(b"a", b"b"), batch(b"c"))
    data = h.fetch(0)
    assert values(data) == [b"a", b"b", b"c"]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)
    assert [header.base_offset for header, _ in iter_batches(bytes(data.records))] == [0, 2]
    assert data.aborted_transactions is None
    assert h.fetch(0, isolation_level=1).aborted_transactions == []
    # A fetch at an offset inside a batch returns the whole batch.
    assert values(h.fetch(1)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 4, 2**62])
async def test_offsets_outside_of_the_log(offset: int) -> None:
    h = Harness()
    h.create_topic()
    fill(h, batch(b"a", b"b", b"c"))
    data = h.fetch(offset)
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_at_least_one_batch_whatever_the_limits() -> None:
    h = Harness()
    h.create_topic(partitions=2)
    fill(h, batch(b"a" * 500), batch(b"b" * 500))
    fill(h, batch(b"c" * 500), index=1)
    for max_bytes in (0, -5, 1, 600):
        request = fetch_request(0, partition_max_bytes=max_bytes, max_bytes=max_bytes)
        request.topics[0].partitions.append(
            FetchRequest.FetchPartition(partition=1, partition_max_bytes=max_bytes)
        )
        first, second = h.call(request, 12).responses[0].partitions
        assert values(first) == [b"a" * 500]
        assert not second.records
    both = fetch_request(0)
    both.topics[0].partitions.append(
        FetchRequest.FetchPartition(partition=1, partition_max_bytes=1 << 20)
    )
    first, second = h.call(both, 12).responses[0].partitions
    assert (len(values(first)), len(values(second))) == (2, 1)


async def test_a_consumer_does_not_see_what_is_not_committed() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a"), acks=1)
    assert (h.fetch(0).records, h.fetch(0).error_code) == (b"", 0)
    assert values(follower(h, 0)) == [b"a"]


# --- fencing --------------------------------------------------------------------------------------


async def test_leader_epochs_fence_the_reader() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    h.change(leader=NODE)
    assert h.fetch(0, current_leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert h.fetch(0, current_leader_epoch=2).error_code == 0
    assert h.fetch(0, current_leader_epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_fetch_refusal_names_newer_leader_from_version_16_on() -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER)

    def ask(version: int, epoch: int) -> Any:
        request = fetch_request(0, topic="", current_leader_epoch=epoch)
        request.topics[0].topic_id = topic_id(1)
        return h.call(request, version)

    response = ask(16, 0)
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (OTHER, 0)
    assert [(e.node_id, e.host, e.port) for e in response.node_endpoints] == [
        (OTHER, "host2", 9092)
    ]
    for version, epoch in ((15, 0), (16, 1)):
        response = ask(version, epoch)
        assert response.responses[0].partitions[0].current_leader.leader_id == -1
        assert response.node_endpoints == []


def led_again() -> Harness:
    """Return a leader with two records of epoch 0, none of another broker's epoch 1, and one of
    epoch 2."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a", b"b"), acks=1)
    h.change(leader=OTHER)
    h.change(leader=NODE)
    h.produce(batch(b"c"), acks=1)
    return h


async def test_fetch_of_diverged_reader_returns_diverging_epoch() -> None:
    h = led_again()
    data = h.fetch(5, last_fetched_epoch=1, version=12)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert h.fetch(2, last_fetched_epoch=0).error_code == 0
    assert h.fetch(0, last_fetched_epoch=9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("codec", Codec)
async def test_fetch_at_each_old_version_returns_batches_of_every_codec(codec: Codec) -> None:
    """Kafka 4.3.1 sends batches as they are stored from version 4 on, whatever their codec.

    aiokafka up to 0.13 and kafka-python up to 2.0.6 read zstd and request version 4.
    """
    h = Harness()
    h.create_topic()
    fill(h, batch(b"a" * 100, compression=codec))
    newest = h.fetch(0, version=12)
    for version in range(4, 12):
        data = h.fetch(0, version=version)
        assert (data.error_code, bytes(data.records)) == (0, bytes(newest.records)), version


# --- followers and those who pretend to be (B32) -------------------------------------------------


def follower(
    h: Harness, offset: int, *, replica_id: int = OTHER, epoch: int = 100 + OTHER, **fields: Any
) -> Any:
    request = fetch_request(offset, topic="", **fields)
    request.topics[0].topic_id = topic_id(1)
    request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=epoch)
    return h.call(request, 17).responses[0].partitions[0]


async def test_a_followers_fetch_moves_its_state_and_the_high_watermark() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a"), acks=1)
    follower(h, 0)
    assert h.partition().remote[OTHER].log_end == 0
    follower(h, 1)
    assert h.partition().log.high_watermark == 1


@pytest.mark.parametrize("replica_id", [3, NODE, 2**31 - 1])
async def test_a_replica_id_that_is_no_replica_is_refused(replica_id: int) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a"), acks=1)
    data = follower(h, 1, replica_id=replica_id)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert h.partition().log.high_watermark == 0


@pytest.mark.parametrize("epoch", [-1, 101, 103])
async def test_another_broker_epoch_moves_nothing(epoch: int) -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a"), acks=1)
    assert follower(h, 1, epoch=epoch).error_code == 0
    assert h.partition().remote[OTHER].log_end == -1
    assert h.partition().log.high_watermark == 0


async def test_a_replica_id_of_the_old_versions_has_no_epoch_and_moves_nothing() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a"), acks=1)
    h.fetch(1, version=12, replica_id=OTHER)
    assert h.partition().log.high_watermark == 0


# --- waiting --------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_bytes() -> None:
    h = Harness()
    h.create_topic()
    waiting = h.fetch(0, max_wait_ms=500)
    assert not waiting.done()
    fill(h, batch(b"a"))
    response = await waiting
    assert values(response.responses[0].partitions[0]) == [b"a"]
    assert len(h.waits.purgatory) == 0


async def test_appends_of_one_turn_are_answered_together() -> None:
    h = Harness()
    h.create_topic()
    waiting = h.fetch(0, max_wait_ms=500)
    fill(h, batch(b"a"), batch(b"b"), batch(b"c"))
    response = await waiting
    assert values(response.responses[0].partitions[0]) == [b"a", b"b", b"c"]


async def test_too_few_bytes_wait_for_more_or_for_the_time() -> None:
    h = Harness()
    h.create_topic()
    waiting = h.fetch(0, max_wait_ms=500, min_bytes=1000)
    fill(h, batch(b"a"))
    await settle()
    assert not waiting.done()
    fill(h, batch(b"b" * 1000))
    assert len(values((await waiting).responses[0].partitions[0])) == 2
    waiting = h.fetch(2, max_wait_ms=500, min_bytes=1000)
    fill(h, batch(b"c"))
    await settle()
    assert not waiting.done()
    h.clock.advance(505)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    assert values((await waiting).responses[0].partitions[0]) == [b"c"]


async def test_a_wait_that_ends_without_bytes_is_answered_empty() -> None:
    h = Harness()
    h.create_topic()
    waiting = h.fetch(0, max_wait_ms=2**31 - 1)
    h.clock.advance(2**31 + 5)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    assert (await waiting).responses[0].partitions[0].records == b""


async def test_uncommitted_bytes_do_not_wake_a_consumer() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.fetch(0, max_wait_ms=500)
    h.produce(batch(b"a"), acks=1)
    await settle()
    assert not waiting.done()
    follower(h, 1)
    assert values((await waiting).responses[0].partitions[0]) == [b"a"]


async def test_losing_leadership_or_the_topic_ends_the_wait_with_an_error() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.fetch(0, max_wait_ms=500, current_leader_epoch=0)
    too_old_for_followers = h.fetch(0, max_wait_ms=500, version=10)
    h.change(leader=OTHER)
    data = (await waiting).responses[0].partitions[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    data = (await too_old_for_followers).responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.change(leader=NODE)
    waiting = h.fetch(0, max_wait_ms=500)
    h.delete_topic()
    data = (await waiting).responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_wait_ends_when_another_reply_stands_behind_it() -> None:
    """A consumer looks for its next offset after a move over the same connection, and reads nothing
    before it has the reply."""
    h, peer = Harness(), Peer()
    h.create_topic()
    future = h.fetch(0, min_bytes=1, max_wait_ms=500, peer=peer)
    (behind,) = peer.behind_callbacks
    behind()
    behind()
    await settle()
    answer = future.result().responses[0].partitions[0]
    assert (answer.error_code, answer.records or b"") == (ErrorCode.NONE, b"")
    assert not peer.behind_callbacks and not len(h.waits.purgatory)


async def test_fetch_after_epoch_lookup_waits_shortly_once() -> None:
    """A consumer looks up epoch ends with one fetch under way: the next fetch uses the result."""
    h, peer = Harness(), Peer()
    h.create_topic(replicas=[NODE, OTHER])

    async def later(wait_ms: float) -> None:
        h.clock.advance(wait_ms)
        h.waits.purgatory.expire(h.clock.monotonic_ms())
        await settle()

    h.call(OffsetForLeaderEpochRequest(replica_id=OTHER), 4, peer)
    after_a_followers = h.fetch(0, max_wait_ms=500, peer=peer)
    await later(MOVED_WAIT_MS + 5)
    assert not after_a_followers.done()
    h.call(OffsetForLeaderEpochRequest(replica_id=-1), 4, peer)
    here = h.fetch(0, max_wait_ms=500, peer=peer)
    elsewhere = h.fetch(0, max_wait_ms=500, peer=Peer(2))
    follower = h.fetch(0, max_wait_ms=500, replica_id=OTHER, peer=peer)
    impatient = h.fetch(0, max_wait_ms=0, peer=peer)
    assert isinstance(impatient, FetchResponse.PartitionData)
    await later(MOVED_WAIT_MS / 2)
    assert not here.done()
    await later(MOVED_WAIT_MS / 2 + 5)
    assert here.done() and not elsewhere.done() and not follower.done()
    await later(MOVED_HERE_MS)
    as_ever = h.fetch(0, max_wait_ms=500, peer=peer)
    await later(MOVED_WAIT_MS + 5)
    assert not as_ever.done()


@pytest.mark.parametrize("max_wait_ms", [1, MOVED_WAIT_MS / 2, MOVED_WAIT_MS, 500])
async def test_fetch_after_epoch_lookup_waits_at_most_max_wait(
    max_wait_ms: float,
) -> None:
    """The bound shortens a wait, and lengthens none."""
    h, peer = Harness(), Peer()
    h.create_topic(replicas=[NODE, OTHER])
    h.call(OffsetForLeaderEpochRequest(replica_id=-1), 4, peer)
    h.fetch(0, max_wait_ms=int(max_wait_ms), peer=peer)
    expected = h.clock.monotonic_ms() + min(int(max_wait_ms), MOVED_WAIT_MS)
    assert h.waits.purgatory.next_deadline_ms() == pytest.approx(expected, abs=TICK_MS)


async def test_a_follower_is_left_to_wait() -> None:
    """A follower's connection carries only fetches, so a long wait delays no client."""
    h, peer = Harness(), Peer()
    h.create_topic(replicas=[NODE, OTHER])
    h.fetch(0, max_wait_ms=500, replica_id=OTHER, peer=peer)
    assert not peer.behind_callbacks


async def test_a_closed_connection_takes_its_waits_with_it() -> None:
    h = Harness()
    h.create_topic()
    peer = Peer(9)
    waiting = h.fetch(0, max_wait_ms=500, peer=peer)
    peer.close("gone")
    assert len(h.waits.purgatory) == 0
    fill(h, batch(b"a"))
    await settle()
    assert waiting.cancelled(), "whoever awaits the answer ends, too"


async def test_cold_fetch_of_closed_connection_leaves_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fetch first reads in a worker; when its wait would begin, the connection is gone."""
    h = Harness()
    h.create_topic()
    fill(h, batch(b"a"))
    monkeypatch.setattr(type(h.partition().log), "is_recent", lambda log, offset: False)
    peer = Peer(9)
    waiting = h.fetch(0, max_wait_ms=2**31 - 1, min_bytes=1000, peer=peer)
    assert len(h.supervisor) == 1, "it is read in a worker"
    peer.close("gone")
    await settle()
    assert waiting.cancelled()
    assert (len(h.waits.purgatory), h.waits.purgatory.next_deadline_ms()) == (0, None)
    assert len(h.supervisor) == 0
    assert not any(h.partition().subscriptions.watches())


async def test_any_error_answers_at_once() -> None:
    h = Harness()
    h.create_topic()
    request = fetch_request(0, max_wait_ms=500)
    request.topics.append(
        FetchRequest.FetchTopic(topic="nope", partitions=[FetchRequest.FetchPartition()])
    )
    response = h.call(request, 12)
    codes = [topic.partitions[0].error_code for topic in response.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_unknown_topic_ids() -> None:
    h = Harness()
    h.create_topic()
    request = fetch_request(0, topic="")
    request.topics[0].topic_id = topic_id(9)
    data = h.call(request, 13).responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_nothing_wanted_is_answered_at_once() -> None:
    h = Harness()
    assert h.call(FetchRequest(max_wait_ms=500, min_bytes=1), 12).responses == []


# --- sessions -------------------------------------------------------------------------------------


async def test_an_incremental_fetch_answers_only_news() -> None:
    h = Harness()
    h.create_topic(partitions=2)
    opening = fetch_request(0)
    opening.topics[0].partitions.append(
        FetchRequest.FetchPartition(partition=1, partition_max_bytes=1 << 20)
    )
    opening.session_epoch = 0
    opened = h.call(opening, 12)
    assert opened.session_id > 0
    assert len(opened.responses[0].partitions) == 2
    quiet = h.call(FetchRequest(session_id=opened.session_id, session_epoch=1), 12)
    assert (quiet.session_id, quiet.responses) == (opened.session_id, [])
    fill(h, batch(b"a"), index=1)
    news = h.call(FetchRequest(session_id=opened.session_id, session_epoch=2), 12)
    assert [p.partition_index for p in news.responses[0].partitions] == [1]
    assert values(news.responses[0].partitions[0]) == [b"a"]
    # Records are sent again as long as the client does not advance its offset.
    again = h.call(FetchRequest(session_id=opened.session_id, session_epoch=3), 12)
    assert values(again.responses[0].partitions[0]) == [b"a"]


async def test_a_moved_log_start_is_news() -> None:
    h = Harness()
    h.create_topic()
    fill(h, batch(b"a"))
    opening = fetch_request(1)
    opening.session_epoch = 0
    opened = h.call(opening, 12)
    h.partition().log.advance_log_start(1)
    news = h.call(FetchRequest(session_id=opened.session_id, session_epoch=1), 12)
    assert news.responses[0].partitions[0].log_start_offset == 1


class SessionClient:
    """A consumer of three partitions: the state that its session has reported, and its next
    offsets."""

    def __init__(self, h: Harness) -> None:
        self.h = h
        self.isolation = 0
        self.offsets = [0, 0, 0]
        self.told: dict[int, Any] = {}
        self.moved = [0, 1, 2]
        self.session_id = 0
        self.epoch = 0

    def ask(self, session_id: int, epoch: int, indexes: list[int]) -> Any:
        """Fetch. Returns: the session id, and the responses by partition."""
        wanted = [
            FetchRequest.FetchPartition(
                partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1 << 20
            )
            for index in indexes
        ]
        topics = [FetchRequest.FetchTopic(topic="t", partitions=wanted)] if wanted else []
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            isolation_level=self.isolation,
            topics=topics,
        )
        answer = self.h.call(request, 12)
        return answer.session_id, [data for topic in answer.responses for data in topic.partitions]

    def step(self) -> None:
        self.session_id, answers = self.ask(self.session_id, self.epoch, self.moved)
        self.epoch += 1
        self.moved = []
        for data in answers:
            index = data.partition_index
            self.told[index] = data.replace(records=None)
            if data.records:
                self.offsets[index] = data.high_watermark
                self.moved.append(index)
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offsets[index] = self.h.partition("t", index).log.log_start_offset
                self.moved.append(index)

    def check(self) -> None:
        """Assert that a full fetch reports no other state of the partitions that did not change."""
        _, answers = self.ask(0, -1, [index for index in range(3) if index not in self.moved])
        for data in answers:
            assert not data.records
            assert self.told[data.partition_index] == data.replace(records=None)


@pytest.mark.parametrize("seed", range(25))
async def test_incremental_fetches_equal_full_fetches(seed: int) -> None:
    """Whatever happens to the partitions, an incremental fetch omits no news.

    A full fetch would repeat the last answer for each omitted partition, and no records are left
    out.
    """
    rng = random.Random(seed)
    h = Harness()
    h.create_topic(partitions=3, replicas=[NODE, OTHER], isr=[NODE])
    client = SessionClient(h)
    for _ in range(80):
        index = rng.randrange(3)
        log = h.partition("t", index).log
        action = rng.choice(["produce", "start", "lead", "isolation", "nothing", "nothing"])
        if action == "produce":
            h.produce(batch(b"a", b"b"), index=index, acks=1)
        elif action == "start" and log.high_watermark > log.log_start_offset:
            log.advance_log_start(rng.randint(log.log_start_offset, log.high_watermark))
        elif action == "lead":
            h.change(index=index, leader=rng.choice([NODE, NODE, OTHER]))
        elif action == "isolation":
            client.isolation = 1 - client.isolation
        client.step()
        client.check()


async def test_a_wait_in_which_nothing_happens_is_not_read_again() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"not committed"), acks=1)
    waiting = h.fetch(0, max_wait_ms=500)
    fetches = h.partition().counters.fetches
    data = await answer_when_over(h, waiting)
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")
    assert h.partition().counters.fetches == fetches


@pytest.mark.parametrize("moved", [False, True])
async def test_a_follower_at_the_end_has_nothing_read_before_it_waits(moved: bool) -> None:
    """Its answer contains the state at the end of the wait."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.produce(batch(b"a"), acks=1)
    with mock.patch.object(RunningFetch, "_read_all", autospec=True) as read:
        waiting = h.fetch(1, max_wait_ms=500, replica_id=OTHER)
        assert not read.called
    log = h.partition().log
    if moved:
        log.update_high_watermark(1)
        log.advance_log_start(1)
    data = await answer_when_over(h, waiting)
    told = (data.error_code, data.high_watermark, data.log_start_offset)
    assert told == (0, log.high_watermark, int(moved))


async def answer_when_over(h: Harness, waiting: Any) -> Any:
    """Return the partition's response to a fetch that waits 500 ms."""
    h.clock.advance(505)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    return (await waiting).responses[0].partitions[0]


async def test_a_session_may_go_on_in_a_version_that_knows_no_divergence() -> None:
    """B31: this version has no field for the divergence that the session knows from its first
    request."""
    h = led_again()
    request = fetch_request(5, last_fetched_epoch=1, session_epoch=0, session_id=0)
    first = h.call(request, 12)
    (data,) = first.responses[0].partitions
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    later = FetchRequest(session_id=first.session_id, session_epoch=1)
    found = [one for topic in h.call(later, 11).responses for one in topic.partitions]
    assert [one.diverging_epoch.epoch for one in found] == [-1]


async def test_session_errors_stand_at_the_top() -> None:
    h = Harness()
    response = h.call(FetchRequest(session_id=5, session_epoch=1), 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_reads_are_counted() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], isr=[NODE])
    fill(h, batch(b"a"))
    size = len(h.fetch(0).records)
    follower(h, 0)
    counters = h.partition().counters
    assert (counters.bytes_out, counters.replication_bytes_out, counters.fetches) == (size, size, 2)


# --- many partitions ------------------------------------------------------------------------------


def many(count: int, **fields: Any) -> FetchRequest:
    wanted = [
        FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20)
        for index in range(count)
    ]
    return FetchRequest(
        min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=wanted)], **fields
    )


async def answered(h: Harness, request: FetchRequest) -> FetchResponse:
    body = await h.call(request, 12)
    response, _ = decode(FetchResponse, b"".join(body.parts), 12)
    return response


async def test_a_fetch_of_many_partitions_reads_those_that_are_here() -> None:
    h = Harness()
    h.create_topic(partitions=2)
    fill(h, batch(b"a"), index=1)
    response = await answered(h, many(3_000, max_wait_ms=60_000, session_epoch=0))
    found = {
        data.partition_index: data for topic in response.responses for data in topic.partitions
    }
    assert set(found) == set(range(3_000))
    assert values(found[1]) == [b"a"]
    assert found[0].error_code == ErrorCode.NONE
    assert {found[n].error_code for n in range(2, 3_000)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert response.session_id == 0 and h.context.sessions.partition_count == 0
    assert [held.done() for held in h.peer.held] == [True]


async def test_a_fetch_of_too_many_partitions_is_refused() -> None:
    h = Harness()
    response = await h.call(many(200_001, max_wait_ms=0, session_epoch=0), 12)
    assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_a_session_keeps_no_partitions_that_are_not_here() -> None:
    """B31: an unknown partition that a client names costs nothing beyond the request."""
    h = Harness()
    h.create_topic(partitions=2)
    opened = h.call(many(3, session_epoch=0), 12)
    assert opened.session_id == 0 and len(h.context.sessions) == 0
    opened = h.call(many(2, session_epoch=0), 12)
    assert opened.session_id != 0 and h.context.sessions.partition_count == 2


async def test_fetch_session_drops_unknown_tags() -> None:
    h = Harness()
    h.create_topic()
    request = many(1, session_epoch=0)
    request.topics[0].partitions[0].unknown_tags = {99: bytes(1 << 20)}
    h.call(request, 12)
    (session,) = h.context.sessions
    (kept,) = session.partitions.values()
    assert kept.request.unknown_tags is None


async def test_fetch_naming_its_rack_dies_with_its_last_reference() -> None:
    """KIP-392: the choice of a replica needs no reference from the fetch to itself."""
    c = Cluster(2, replica_selector_class=RACK_AWARE)
    c.create(1, 2)
    c[1].append(b"a")
    gc.collect()
    gc.disable()
    try:
        before = sum(type(one) is FetchRequest for one in gc.get_objects())
        c[1].fetch(0, rack_id="rack1")
        after = sum(type(one) is FetchRequest for one in gc.get_objects())
    finally:
        gc.enable()
    assert after == before
