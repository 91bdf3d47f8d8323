"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, DescribeLogDirs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis.list_offsets import SINCE, Special
from protocol.batch.records import Producer
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from runtime.slices import SLICE_MS
from storage.log.producers import ProducerState
from testkit.loop_holds import ToilClock, loop_holds
from testkit.memory.broker import LOG_DIR, NODE, OTHER, Harness, batch

T0 = 1_700_000_000_000


def list_offset(h: Harness, timestamp: int, version: int = 11, **fields: Any) -> Any:
    wanted = ListOffsetsRequest.ListOffsetsPartition(
        timestamp=timestamp, current_leader_epoch=fields.pop("current_leader_epoch", -1)
    )
    request = ListOffsetsRequest(
        replica_id=fields.pop("replica_id", -1),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])],
        **fields,
    )
    return h.body(request, version).topics[0].partitions[0]


def found(result: Any) -> tuple[int, int, int]:
    assert result.error_code == 0
    return result.timestamp, result.offset, result.leader_epoch


def filled(**topic: Any) -> Harness:
    h = Harness()
    h.create_topic(**topic)
    for number in range(3):
        h.produce(batch(b"x", b"y", timestamp=T0 + number * 100), acks=1)
    return h


@pytest.mark.parametrize("version", range(1, 12))
async def test_both_ends_and_a_timestamp_in_every_version(version: int) -> None:
    h = filled()
    epoch = 0 if version >= 4 else -1
    assert found(list_offset(h, Special.LATEST, version)) == (-1, 6, epoch)
    assert found(list_offset(h, Special.EARLIEST, version)) == (-1, 0, epoch)
    assert found(list_offset(h, T0 + 100, version)) == (T0 + 100, 2, epoch)
    assert found(list_offset(h, T0 + 101, version)) == (T0 + 101, 3, epoch)
    assert found(list_offset(h, T0 + 999, version)) == (-1, -1, -1)


async def test_the_other_special_timestamps() -> None:
    h = filled()
    h.partition().log.advance_log_start(1)
    assert found(list_offset(h, Special.EARLIEST)) == (-1, 1, 0)
    assert found(list_offset(h, Special.EARLIEST_LOCAL)) == (-1, 1, 0)
    assert found(list_offset(h, Special.MAX_TIMESTAMP)) == (T0 + 201, 5, 0)
    assert found(list_offset(h, Special.LATEST_TIERED)) == (-1, -1, -1)
    assert found(list_offset(h, Special.EARLIEST_PENDING_UPLOAD)) == (-1, -1, -1)


async def test_special_timestamps_before_their_version_are_unsupported() -> None:
    h = filled()
    for special, since in SINCE.items():
        for version in range(1, since):
            result = list_offset(h, special, version)
            assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(h, -7).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_empty_log() -> None:
    h = Harness()
    h.create_topic()
    assert found(list_offset(h, Special.LATEST))[1] == 0
    assert found(list_offset(h, Special.EARLIEST))[1] == 0
    assert found(list_offset(h, Special.MAX_TIMESTAMP)) == (-1, -1, -1)
    assert found(list_offset(h, T0)) == (-1, -1, -1)


async def test_list_offsets_hides_uncommitted_records_from_consumers() -> None:
    h = filled(replicas=[NODE, OTHER])
    assert found(list_offset(h, Special.LATEST))[1] == 0
    assert found(list_offset(h, T0)) == (-1, -1, -1)
    assert found(list_offset(h, Special.LATEST, replica_id=OTHER))[1] == 6


async def test_a_new_leader_waits_for_its_high_watermark() -> None:
    h = filled(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    h.change(leader=NODE)
    assert not h.partition().high_watermark_settled
    for special in (Special.LATEST, T0):
        assert list_offset(h, special).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert list_offset(h, special, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert found(list_offset(h, Special.EARLIEST))[1] == 0


async def test_epochs_and_unknown_partitions() -> None:
    h = filled()
    fenced = list_offset(h, Special.LATEST, current_leader_epoch=5)
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    h.delete_topic()
    assert list_offset(h, -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_partition_named_twice_is_an_invalid_request() -> None:
    h = filled()
    wanted = ListOffsetsRequest.ListOffsetsPartition(timestamp=-1)
    request = ListOffsetsRequest(
        topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted, wanted])]
    )
    results = h.body(request).topics[0].partitions
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST] * 2


# --- OffsetForLeaderEpoch -------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_offset_for_leader_epoch_returns_end_of_epoch(version: int) -> None:
    h = filled()
    h.change(leader=OTHER, replicas=[NODE, OTHER])
    h.change(leader=NODE)
    h.produce(batch(b"z"), acks=1)

    def end_of(epoch: int, current: int = -1) -> tuple[int, int, int]:
        wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            leader_epoch=epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[wanted])
            ]
        )
        result = h.body(request, version).topics[0].partitions[0]
        return result.error_code, result.leader_epoch, result.end_offset

    assert end_of(0) == (0, 0, 6)
    assert end_of(1) == (0, 0, 6)
    assert end_of(2) == (0, 2, 7)
    assert end_of(9) == (0, -1, -1)
    assert end_of(0, current=1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


# --- DeleteRecords --------------------------------------------------------------------------------


def delete(h: Harness, offset: int, topic: str = "t", version: int = 2) -> tuple[int, int]:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])]
    )
    result = h.body(request, version).topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_are_deleted_up_to_an_offset(version: int) -> None:
    h = filled()
    assert delete(h, 3, version=version) == (0, 3)
    assert h.fetch(2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(h, 1) == (0, 3)
    assert delete(h, -1) == (0, 6)


async def test_delete_records_outside_limits_is_refused() -> None:
    h = filled()
    assert delete(h, 7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(h, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(h, 0, "nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    h.create_topic("__consumer_offsets", number=2)
    assert delete(h, 0, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    h.create_topic("c", number=3, configs={"cleanup.policy": "compact"})
    assert delete(h, 0, "c") == (ErrorCode.POLICY_VIOLATION, -1)


# --- DescribeProducers and DescribeLogDirs --------------------------------------------------------


def producers(h: Harness, topic: str) -> Any:
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
    )
    return h.body(request).topics[0].partitions[0]


async def test_producers_are_described() -> None:
    h = Harness()
    h.create_topic()
    h.produce(batch(b"a", b"b", timestamp=T0, producer=Producer(5, 3, 0)))
    (state,) = producers(h, "t").active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5, 3, 1)
    assert (state.last_timestamp, state.coordinator_epoch) == (T0 + 1, -1)
    assert state.current_txn_start_offset == -1
    assert producers(h, "a/b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert producers(h, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_many_producers_are_described_in_slices() -> None:
    """100,000 producers would block the event loop for 250 ms."""
    clock = ToilClock()
    h = Harness(clock=clock)
    h.create_topic()
    count = 3_000
    ToilingState.clock = clock
    states = h.partition().log.producers._producers
    states.update((at, ToilingState(at)) for at in range(count))
    named = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 7])
    async with loop_holds(clock) as holds:
        response = await h.call(DescribeProducersRequest(topics=[named]))
    known, unknown = response.topics[0].partitions
    assert [one.producer_id for one in known.active_producers] == list(range(count))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert holds.longest_ms < 2 * SLICE_MS


class ToilingState(ProducerState):
    """A producer's state whose description counts as work."""

    clock: ToilClock

    @property
    def last_sequence(self) -> int:
        self.clock.toil(0.003)
        return 0


@pytest.mark.parametrize("version", range(1, 6))
async def test_the_log_directory_is_described(version: int) -> None:
    h = Harness()
    h.create_topic("a", number=1, partitions=2)
    h.create_topic("b", number=2)
    size = len(batch(b"x"))
    h.produce(batch(b"x"), topic="a", index=1)
    (result,) = h.body(DescribeLogDirsRequest(topics=None), version).results
    assert (result.log_dir, result.error_code) == (LOG_DIR, 0)
    assert [
        (t.name, [(p.partition_index, p.partition_size, p.offset_lag) for p in t.partitions])
        for t in result.topics
    ] == [("a", [(0, 0, 0), (1, size, 0)]), ("b", [(0, 0, 0)])]
    assert (result.total_bytes > 0) == (version >= 4)
    named = DescribeLogDirsRequest(
        topics=[DescribeLogDirsRequest.DescribableLogDirTopic(topic="a", partitions=[1, 9])]
    )
    (result,) = h.body(named, version).results
    assert [p.partition_index for t in result.topics for p in t.partitions] == [1]
