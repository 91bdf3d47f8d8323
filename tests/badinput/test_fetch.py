"""Fetches: B30 to B32 and B35 of the catalogue."""

from __future__ import annotations

import time

import pytest

from protocol.api_keys import ApiKey
from protocol.batch import iter_batches
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.produce import ProduceRequest
from testkit.processes.peer import Target, Topic, fetch_request, produce_request
from testkit.records.lying_batches import batch, record

E = ErrorCode
ZERO_ID = bytes(16)
UNKNOWN_ID = b"\x01" * 16
NAMES, IDS = 12, 17
"""A version that names topics, and one that identifies them."""


@pytest.fixture(scope="module")
def topic(target: Target) -> Topic:
    """Return a topic with offsets 0 to 4 in five batches of a kilobyte."""
    made = target.topic(partitions=2)
    for _ in range(5):
        assert target.produce(made, batch(record(bytes(1000)))).error_code == 0
    return made


def the_partition(response: FetchResponse) -> FetchResponse.PartitionData:
    assert response.error_code == 0
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def batches_of(partition: FetchResponse.PartitionData) -> int:
    assert isinstance(partition.records, (bytes, memoryview))
    return len(list(iter_batches(partition.records)))


def end_offset(target: Target, topic: Topic) -> int:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
                ],
            )
        ]
    )
    with target.connect() as peer:
        return peer.ask(request, 7).topics[0].partitions[0].offset


@pytest.mark.parametrize("max_bytes", [0, 1, -1, -(2**31)])
def test_b30_too_few_bytes_give_one_batch(target: Target, topic: Topic, max_bytes: int) -> None:
    with target.connect() as peer:
        one = the_partition(peer.ask(fetch_request(topic, partition_max_bytes=1), NAMES))
        assert batches_of(one) == 1
        answer = the_partition(peer.ask(fetch_request(topic, max_bytes=max_bytes), NAMES))
        if target.is_kafka and max_bytes < 0:
            assert E(answer.error_code) is E.UNKNOWN_SERVER_ERROR
        else:
            assert answer.error_code == 0
            assert batches_of(answer) == 1


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
def test_b30_partition_bytes_not_above_zero(target: Target, topic: Topic, max_bytes: int) -> None:
    with target.connect() as peer:
        answer = the_partition(peer.ask(fetch_request(topic, partition_max_bytes=max_bytes), NAMES))
        if target.is_kafka and max_bytes < 0:
            assert E(answer.error_code) is E.UNKNOWN_SERVER_ERROR
        else:
            assert answer.error_code == 0
            assert batches_of(answer) == 1


def test_b30_all_the_bytes_there_can_be(target: Target, topic: Topic) -> None:
    most = 2**31 - 1
    with target.connect() as peer:
        request = fetch_request(topic, max_bytes=most, partition_max_bytes=most)
        assert batches_of(the_partition(peer.ask(request, NAMES))) == 5


def test_b30_min_bytes_above_max_bytes(target: Target, topic: Topic) -> None:
    with target.connect() as peer:
        request = fetch_request(topic, max_bytes=2000, min_bytes=2**31 - 1, max_wait_ms=50)
        assert batches_of(the_partition(peer.ask(request, NAMES))) >= 1
        peer.works()


@pytest.mark.parametrize("min_bytes", [0, -1, -(2**31)])
def test_b30_min_bytes_not_above_zero_do_not_wait(
    target: Target, topic: Topic, min_bytes: int
) -> None:
    with target.connect() as peer:
        request = fetch_request(topic, offset=5, min_bytes=min_bytes, max_wait_ms=60_000)
        assert the_partition(peer.ask(request, NAMES)).error_code == 0


@pytest.mark.parametrize("wait_ms", [-1, -(2**31)])
def test_b30_negative_wait(target: Target, topic: Topic, wait_ms: int) -> None:
    with target.connect() as peer:
        request = fetch_request(topic, offset=5, min_bytes=1, max_wait_ms=wait_ms)
        assert the_partition(peer.ask(request, NAMES)).error_code == 0


def test_b30_endless_waits_end_with_their_connection(target: Target) -> None:
    topic = target.topic()
    for _ in range(50):
        with target.connect() as peer:
            peer.ask_later(fetch_request(topic, min_bytes=1, max_wait_ms=2**31 - 1), NAMES)
    with target.connect() as peer:
        peer.ask_later(fetch_request(topic, min_bytes=1, max_wait_ms=2**31 - 1), NAMES)
        assert target.produce(topic, batch()).error_code == 0
        _, answer = peer.answer(ApiKey.FETCH, NAMES)
        assert batches_of(the_partition(answer)) == 1


@pytest.mark.parametrize("offset", [-1, -(2**63), 6, 2**63 - 1])
def test_b30_offset_out_of_range(target: Target, topic: Topic, offset: int) -> None:
    with target.connect() as peer:
        request = fetch_request(topic, offset=offset, min_bytes=1, max_wait_ms=60_000)
        answer = the_partition(peer.ask(request, NAMES))
        assert E(answer.error_code) is E.OFFSET_OUT_OF_RANGE
        assert answer.high_watermark == -1 and not answer.records


@pytest.mark.parametrize("partition", [-1, 2, 2**31 - 1])
def test_b30_partition_that_does_not_exist(target: Target, topic: Topic, partition: int) -> None:
    with target.connect() as peer:
        answer = the_partition(peer.ask(fetch_request(topic, partition=partition), NAMES))
        assert E(answer.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION


def test_b31_unknown_session(target: Target, topic: Topic) -> None:
    with target.connect() as peer:
        # Kafka has an internal error for ids that it never assigns.
        for session_id in (1, 77) if target.is_kafka else (1, -1, 2**31 - 1):
            answer = peer.ask(fetch_request(topic, session_id=session_id, session_epoch=1), NAMES)
            assert E(answer.error_code) is E.FETCH_SESSION_ID_NOT_FOUND
            assert answer.responses == []


def test_b31_epoch_out_of_turn(target: Target, topic: Topic) -> None:
    with target.connect() as peer:
        opened = peer.ask(fetch_request(topic, session_epoch=0), NAMES)
        assert opened.error_code == 0 and opened.session_id != 0
        for epoch in (2, 5, 2**31 - 1, -2):
            request = FetchRequest(
                session_id=opened.session_id, session_epoch=epoch, max_bytes=1000
            )
            answer = peer.ask(request, NAMES)
            assert E(answer.error_code) is E.INVALID_FETCH_SESSION_EPOCH
        request = FetchRequest(session_id=opened.session_id, session_epoch=1, max_bytes=1000)
        assert peer.ask(request, NAMES).error_code == 0


def test_b31_ten_thousand_sessions(target: Target, topic: Topic) -> None:
    opened = []
    with target.connect(60.0) as peer:
        for begin in range(0, 10_000, 500):
            for _ in range(500):
                peer.ask_later(fetch_request(topic, offset=5, session_epoch=0), NAMES)
            for _ in range(500):
                _, answer = peer.answer(ApiKey.FETCH, NAMES)
                assert answer.error_code == 0, begin
                opened.append(answer.session_id)
        # Beyond the cache's slots a client is served without a session.
        sessions = [session_id for session_id in opened if session_id]
        assert 0 < len(sessions) <= 20
        for session_id in sessions:
            closed = peer.ask(FetchRequest(session_id=session_id, session_epoch=-1), NAMES)
            assert closed.error_code == 0
        assert peer.ask(fetch_request(topic, session_epoch=0), NAMES).session_id != 0


def test_b32_a_client_that_calls_itself_a_replica(target: Target, topic: Topic) -> None:
    """Its claims about itself must have no effect."""
    with target.connect() as peer:
        for replica_id in (1, 2, 99):
            request = fetch_request(topic, offset=1000, replica_id=replica_id)
            answer = the_partition(peer.ask(request, NAMES))
            assert E(answer.error_code) in (
                E.NOT_LEADER_OR_FOLLOWER,
                E.UNKNOWN_LEADER_EPOCH,
                E.OFFSET_OUT_OF_RANGE,
            )
    assert end_offset(target, topic) == 5


@pytest.mark.parametrize("replica_id", [1, 2, 99])
@pytest.mark.parametrize("broker_epoch", [-1, 0, 2**62])
def test_b32_a_replica_with_a_wrong_broker_epoch(
    target: Target, topic: Topic, replica_id: int, broker_epoch: int
) -> None:
    request = fetch_request(topic, offset=3)
    request.replica_state = FetchRequest.ReplicaState(
        replica_id=replica_id, replica_epoch=broker_epoch
    )
    with target.connect() as peer:
        answer = the_partition(peer.ask(request, IDS))
        assert E(answer.error_code) is E.NOT_LEADER_OR_FOLLOWER
    assert end_offset(target, topic) == 5


@pytest.mark.parametrize(
    ("leader_epoch", "code"), [(1_000, E.UNKNOWN_LEADER_EPOCH), (2**31 - 1, E.UNKNOWN_LEADER_EPOCH)]
)
def test_b32_leader_epoch_of_the_future(
    target: Target, topic: Topic, leader_epoch: int, code: ErrorCode
) -> None:
    with target.connect() as peer:
        request = fetch_request(topic, leader_epoch=leader_epoch)
        assert E(the_partition(peer.ask(request, NAMES)).error_code) is code


@pytest.mark.parametrize("topic_id", [ZERO_ID, UNKNOWN_ID])
def test_b35_unknown_topic_id(target: Target, topic: Topic, topic_id: bytes) -> None:
    with target.connect() as peer:
        answer = the_partition(peer.ask(fetch_request(Topic("", topic_id)), IDS))
        assert E(answer.error_code) is E.UNKNOWN_TOPIC_ID
        request = produce_request({("", 0): batch()})
        request.topic_data[0].topic_id = topic_id
        (one,) = peer.ask(request, 13).responses
        assert E(one.partition_responses[0].error_code) is E.UNKNOWN_TOPIC_ID


def test_b35_id_of_a_deleted_namesake(target: Target) -> None:
    old = target.topic()
    assert target.produce(old, batch()).error_code == 0
    target.delete(old)
    new = target.topic(name=old.name)
    assert new.id != old.id
    with target.connect() as peer:
        answer = the_partition(peer.ask(fetch_request(old), IDS))
        assert E(answer.error_code) is E.UNKNOWN_TOPIC_ID
        assert batches_of(the_partition(peer.ask(fetch_request(new), IDS))) == 0
        part = ProduceRequest.PartitionProduceData(index=0, records=batch())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(topic_id=old.id, partition_data=[part])],
        )
        (one,) = peer.ask(request, 13).responses
        assert E(one.partition_responses[0].error_code) is E.UNKNOWN_TOPIC_ID
    assert end_offset(target, new) == 0


def test_b35_a_session_over_a_topic_that_is_made_again(target: Target) -> None:
    old = target.topic()
    with target.connect() as peer:
        opened = peer.ask(fetch_request(old, session_epoch=0), IDS)
        assert opened.error_code == 0
        target.delete(old)
        target.topic(name=old.name)
        deadline = time.monotonic() + 10.0
        epoch = 1
        while True:
            request = FetchRequest(
                session_id=opened.session_id, session_epoch=epoch, max_bytes=1000
            )
            answer = peer.ask(request, IDS)
            assert answer.error_code == 0
            epoch += 1
            if answer.responses:
                break
            assert time.monotonic() < deadline
        code = E(answer.responses[0].partitions[0].error_code)
        assert code in (E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID)
