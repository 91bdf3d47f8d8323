"""Produce: appends, results, and the time of the response."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from protocol.batch.records import Producer
from protocol.codec import decode
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.transport.dispatch import CloseConnection
from testkit.memory.broker import (
    NODE,
    OTHER,
    Harness,
    Peer,
    batch,
    fetch_request,
    produce_request,
    settle,
    topic_id,
)


async def test_acks_all_with_one_replica_is_answered_at_once() -> None:
    h = Harness()
    h.create_topic()
    first = h.produce(batch(b"a", b"b"))
    second = h.produce(batch(b"c"))
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 0, -1)
    assert (second.error_code, second.base_offset, second.log_start_offset) == (0, 2, 0)
    partition = h.partition()
    assert partition.log.high_watermark == 3
    assert partition.counters.messages_in == 3
    partition.validate()


async def test_topics_are_named_by_id_from_version_13() -> None:
    h = Harness()
    tid = h.create_topic()
    request = produce_request(batch(b"a"), topic="")
    request.topic_data[0].topic_id = tid
    assert h.call(request, 13).responses[0].partition_responses[0].error_code == 0
    request.topic_data[0].topic_id = topic_id(99)
    result = h.call(request, 13).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request.topic_data[0].topic_id = ZERO_UUID
    result = h.call(request, 13).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2**31 - 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("../../etc/x", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_partitions_that_are_not_led_here(topic: str, index: int, code: ErrorCode) -> None:
    h = Harness()
    h.create_topic()
    h.create_topic("elsewhere", number=2, replicas=[OTHER], leader=OTHER)
    result = h.produce(batch(b"a"), topic=topic, index=index)
    assert (result.error_code, result.base_offset, result.log_start_offset) == (code, -1, -1)


async def test_produce_refusal_names_new_leader_from_version_10_on() -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER)
    response = h.call(produce_request(batch(b"a")), 10)
    told = response.responses[0].partition_responses[0].current_leader
    assert (told.leader_id, told.leader_epoch) == (OTHER, 0)
    assert [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == [
        (OTHER, "host2", 9092, "rack2")
    ]
    older = h.call(produce_request(batch(b"a")), 9)
    assert older.responses[0].partition_responses[0].current_leader.leader_id == -1
    assert older.node_endpoints == []


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_acks_that_do_not_exist_append_nothing(acks: int) -> None:
    h = Harness()
    h.create_topic()
    assert h.produce(batch(b"a"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert h.partition().log.log_end_offset == 0


async def test_acks_zero_is_silent_and_closes_on_error() -> None:
    h = Harness()
    h.create_topic()
    assert h.produce(batch(b"a"), acks=0) is None
    assert h.partition().log.log_end_offset == 1
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        h.produce(batch(b"a"), acks=0, topic="nope")


async def test_a_corrupt_batch_does_not_stop_the_others() -> None:
    h = Harness()
    h.create_topic(partitions=2)
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    request = produce_request(bytes(broken))
    request.topic_data[0].partition_data.append(
        ProduceRequest.PartitionProduceData(index=1, records=batch(b"b"))
    )
    results = h.call(request, 12).responses[0].partition_responses
    assert [r.error_code for r in results] == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert h.partition().counters.failed_produces == 1
    assert h.partition().counters.bytes_rejected == len(broken)


async def test_a_partition_named_twice_is_appended_once() -> None:
    h = Harness()
    h.create_topic()
    request = produce_request(batch(b"a"))
    request.topic_data[0].partition_data *= 2
    results = h.call(request, 12).responses[0].partition_responses
    assert len(results) == 1
    assert h.partition().log.log_end_offset == 1


async def test_record_errors_name_the_records() -> None:
    h = Harness()
    h.create_topic(configs={"cleanup.policy": "compact"})
    result = h.produce(batch(b"a", b"b"))
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in result.record_errors] == [0, 1]
    assert h.produce(batch(b"a", key=b"k")).error_code == 0


async def test_produce_returns_and_stores_log_append_time() -> None:
    h = Harness()
    h.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    result = h.produce(batch(b"a"))
    assert result.log_append_time_ms == h.clock.now_ms()


async def test_a_batch_over_max_message_bytes() -> None:
    h = Harness()
    h.create_topic(configs={"max.message.bytes": "200"})
    assert h.produce(batch(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_settings_follow_the_metadata_log() -> None:
    h = Harness()
    h.create_topic()
    h.set_config("t", "max.message.bytes", "200")
    assert h.produce(batch(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    h.set_config("t", "max.message.bytes", None)
    assert h.produce(batch(b"x" * 300)).error_code == 0
    h.set_config("", "message.max.bytes", "200", resource_type=4)
    assert h.produce(batch(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_internal_topics_are_for_brokers_only() -> None:
    h = Harness()
    h.create_topic("__consumer_offsets")
    result = h.produce(batch(b"a", key=b"k"), topic="__consumer_offsets")
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_transactional_produce_is_refused_as_not_authorised() -> None:
    h = Harness()
    h.create_topic()
    request = produce_request(batch(b"a"))
    request.transactional_id = "tx"
    result = h.call(request, 12).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_retry_of_an_idempotent_batch_gets_its_first_offset() -> None:
    h = Harness()
    h.create_topic()
    first = batch(b"a", b"b", producer=Producer(5, 0, 0))
    h.produce(first)
    h.produce(batch(b"c", producer=Producer(5, 0, 2)))
    again = h.produce(first)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert h.partition().log.log_end_offset == 3
    assert h.partition().counters.messages_in == 3
    ahead = h.produce(batch(b"z", producer=Producer(5, 0, 9)))
    assert ahead.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_zstd_needs_version_7() -> None:
    h = Harness()
    h.create_topic()
    data = batch(b"a" * 100, compression=Codec.ZSTD)
    assert h.produce(data, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert h.produce(data, version=7).error_code == 0


# --- waiting for followers ------------------------------------------------------------------------


def follower_fetch(h: Harness, offset: int, **fields: Any) -> Any:
    request = fetch_request(offset, topic="", **fields)
    request.topics[0].topic_id = topic_id(1)
    request.replica_state = FetchRequest.ReplicaState(replica_id=OTHER, replica_epoch=102)
    return h.call(request, 17)


async def test_acks_all_waits_for_the_in_sync_follower() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.produce(batch(b"a"))
    assert not waiting.done()
    assert h.partition().log.high_watermark == 0
    follower_fetch(h, 0)
    assert not waiting.done()
    follower_fetch(h, 1)
    assert h.partition().log.high_watermark == 1
    result = (await waiting).responses[0].partition_responses[0]
    assert (result.error_code, result.base_offset) == (0, 0)
    assert len(h.waits.purgatory) == 0


async def test_acks_one_does_not_wait() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    assert h.produce(batch(b"a"), acks=1).base_offset == 0
    assert h.partition().log.high_watermark == 0


async def test_produce_without_commit_in_time_is_timed_out() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.produce(batch(b"a"), timeout_ms=500)
    h.clock.advance(499)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    assert not waiting.done()
    h.clock.advance(10)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    result = (await waiting).responses[0].partition_responses[0]
    assert (result.error_code, result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    follower_fetch(h, 1)  # the late commit finds no waiting request


async def test_losing_leadership_fails_the_waiting_produce_and_names_the_new_leader() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.produce(batch(b"a"))
    h.change(leader=OTHER)
    response = await waiting
    result = response.responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (OTHER, 1)


async def test_deleting_the_topic_fails_the_waiting_produce() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.produce(batch(b"a"))
    h.delete_topic()
    result = (await waiting).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_closed_connection_takes_its_waiting_produce_with_it() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    peer = Peer(5)
    waiting = h.produce(batch(b"a"), peer=peer)
    peer.close("gone")
    assert len(h.waits.purgatory) == 0
    follower_fetch(h, 1)
    await settle()
    assert waiting.cancelled(), "whoever awaits the answer ends, too"


async def test_too_few_in_sync_replicas_before_and_after_the_append() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], configs={"min.insync.replicas": "2"})
    waiting = h.produce(batch(b"a"))
    h.change(isr=[NODE])
    # Below min ISR the high watermark does not move, although every ISR member has the record.
    assert not waiting.done()
    assert h.partition().log.high_watermark == 0
    refused = h.produce(batch(b"b"))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert h.partition().log.log_end_offset == 1
    assert h.produce(batch(b"c"), acks=1).error_code == 0
    h.change(isr=[NODE, OTHER])
    follower_fetch(h, 2)
    assert (await waiting).responses[0].partition_responses[0].error_code == 0


async def test_the_minimum_is_never_above_the_number_of_replicas() -> None:
    h = Harness()
    h.create_topic(configs={"min.insync.replicas": "2"})
    assert h.produce(batch(b"a")).error_code == 0


@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_produce_with_flush_messages_commits_after_flush(acks: int) -> None:
    """As in Kafka, no consumer sees a record that a power cut could still remove."""
    h = Harness()
    h.create_topic(configs={"flush.messages": "2"})
    log = h.partition().log
    h.produce(batch(b"a"), acks=acks)
    assert (log.high_watermark, log.recovery_point) == (1, 0)
    waiting = h.produce(batch(b"b", b"c"), acks=acks)
    assert (log.high_watermark, log.log_end_offset) == (1, 3)
    if waiting is not None:
        assert (await waiting).responses[0].partition_responses[0].base_offset == 1
    await settle()
    assert (log.high_watermark, log.recovery_point) == (3, 3)
    await h.supervisor.close()


async def test_a_leader_flushes_what_recovery_found_before_it_is_committed() -> None:
    h = Harness()
    h.create_topic(configs={"flush.messages": "1"})
    partition = h.partition()
    partition.log.append_as_leader(memoryview(bytearray(batch(b"a"))), 0, 1)
    h.change(leader=-1)
    h.change(leader=NODE)
    assert partition.log.high_watermark == 0
    await settle()
    assert (partition.log.high_watermark, partition.log.recovery_point) == (1, 1)
    await h.supervisor.close()


async def test_flush_messages_holds_the_answer_back_until_the_disk_has_it() -> None:
    h = Harness()
    h.create_topic(configs={"flush.messages": "2"})
    log = h.partition().log
    assert h.produce(batch(b"a"), acks=1).error_code == 0
    assert log.recovery_point == 0
    waiting = h.produce(batch(b"b"), acks=1)
    assert not waiting.done()
    response = await waiting
    assert response.responses[0].partition_responses[0].base_offset == 1
    assert log.recovery_point == 2
    await settle()
    await h.supervisor.close()


# --- many partitions ------------------------------------------------------------------------------


def to_many(count: int, acks: int = 1) -> ProduceRequest:
    frame = memoryview(bytearray(batch(b"a")))
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=frame) for index in range(count)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


async def test_a_request_with_many_batches_is_appended_in_slices() -> None:
    """The next read overwrites the frame, so its records are copied before the first pause."""
    h = Harness()
    h.create_topic(partitions=3)
    request = to_many(1_000)
    frame = request.topic_data[0].partition_data[0].records
    promise = h.call(request, 12)
    frame[:] = bytes(len(frame))
    (held,) = h.peer.held
    assert not held.done()
    body = await promise
    response, _ = decode(ProduceResponse, b"".join(body.parts), 12)
    (topic,) = response.responses
    codes = [result.error_code for result in topic.partition_responses]
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 997
    assert h.partition(index=2).log.log_end_offset == 1
    assert held.done()


async def test_many_batches_without_acks_close_the_connection_on_an_error() -> None:
    h = Harness()
    h.create_topic(partitions=300)
    assert await h.call(to_many(300, acks=0), 12) is None
    assert h.peer.closed is None
    assert await h.call(to_many(301, acks=0), 12) is None
    assert h.peer.closed is not None


async def test_a_request_with_too_many_batches_closes_the_connection() -> None:
    h = Harness()
    with pytest.raises(CloseConnection):
        h.call(to_many(400_001), 12)


@pytest.mark.parametrize("batches", [1, 2])
async def test_produce_on_failed_disk_names_no_file_of_the_broker(
    batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk's error is for the broker's log; a client gets KAFKA_STORAGE_ERROR alone."""
    h = Harness()
    h.create_topic(partitions=2)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    kind = type(h.partition().log.segments.active.log)
    monkeypatch.setattr(kind, "append", full)
    monkeypatch.setattr(kind, "append_many", full)
    request = produce_request(batch(b"a"))
    for index in range(1, batches):
        request.topic_data[0].partition_data.append(
            ProduceRequest.PartitionProduceData(index=index, records=batch(b"b"))
        )
    result = h.call(request, 12).responses[0].partition_responses[0]
    assert (result.error_code, result.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
