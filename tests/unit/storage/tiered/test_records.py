"""Records of `__remote_log_metadata`; tests/interop compares them with Kafka's own classes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from protocol.errors import ProtocolError
from protocol.ids import TopicId, uuid_from_text
from storage.tiered.records import decode_record, encode_record, metadata_partition
from storage.tiered.states import (
    PARTITION_TRANSITIONS,
    SEGMENT_TRANSITIONS,
    PartitionDeleteState,
    SegmentState,
    partition_may_become,
    segment_may_become,
)
from storage.tiered.values import RemotePartition
from testkit.records.tier import PARTITION, random_record, segment, update


def test_records_come_back() -> None:
    rng = random.Random(1)
    for _ in range(300):
        record = random_record(rng)
        assert decode_record(encode_record(record)) == record


def test_the_frame_is_kafkas() -> None:
    data = encode_record(update(7, SegmentState.COPY_FINISHED))
    assert data[:3] == bytes((1, 1, 0)), "frame version, record type, record version"


def test_the_partition_is_kafkas() -> None:
    """The expected numbers are those of RemoteLogMetadataTopicPartitioner of Kafka 4.3.1."""
    topic_id = TopicId(uuid_from_text("AAECAwQFBgcICQoLDA0ODw"))
    found = [metadata_partition(RemotePartition(topic_id, at, "t"), 50) for at in range(4)]
    assert found == [45, 3, 5, 36]


def test_decode_record_refuses_truncated_or_malformed_bytes() -> None:
    data = encode_record(segment(1, 0, 9))
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_record(data[:length])
    with pytest.raises(ProtocolError):
        decode_record(data + b"\0")
    with pytest.raises(ProtocolError):
        decode_record(bytes((1, 9, 0)))


def test_remote_segment_with_impossible_values_is_refused() -> None:
    whole = encode_record(segment(1, 5, 9))
    wrong_state = bytearray(whole)
    assert wrong_state[-2] == SegmentState.COPY_STARTED
    wrong_state[-2] = 9
    with pytest.raises(ProtocolError, match="9 is not a valid"):
        decode_record(bytes(wrong_state))
    with pytest.raises(ValueError, match=r"offsets 9\.\.5"):
        segment(1, 9, 5)
    with pytest.raises(ValueError, match="without a leader epoch"):
        replace(segment(1, 5, 9), epochs=())


@pytest.mark.parametrize("target", SegmentState)
@pytest.mark.parametrize("state", [None, *SegmentState])
def test_states_of_a_segment(state: SegmentState | None, target: SegmentState) -> None:
    """S3: COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED, or without the second."""
    allowed = {(None, 0), (0, 1), (0, 2), (1, 2), (2, 3)} | {(at, at) for at in range(4)}
    assert segment_may_become(state, target) is ((state, target) in allowed)
    assert state in SEGMENT_TRANSITIONS


@pytest.mark.parametrize("target", PartitionDeleteState)
@pytest.mark.parametrize("state", [None, *PartitionDeleteState])
def test_states_of_a_removal(
    state: PartitionDeleteState | None, target: PartitionDeleteState
) -> None:
    allowed = {(None, 0), (0, 1), (1, 2)} | {(at, at) for at in range(3)}
    assert partition_may_become(state, target) is ((state, target) in allowed)
    assert state in PARTITION_TRANSITIONS


def test_ranges_of_epochs() -> None:
    found = segment(1, 10, 29, {1: 3, 2: 15, 3: 15, 4: 20})
    assert list(found.epoch_ranges()) == [(1, 10, 14), (3, 15, 19), (4, 20, 29)]


def test_segment_update_keeps_fields_that_it_omits() -> None:
    before = replace(segment(1, 0, 9), custom_metadata=b"where")
    after = before.updated(update(1, SegmentState.COPY_FINISHED, broker_id=5))
    assert after == replace(
        before, state=SegmentState.COPY_FINISHED, broker_id=5, event_timestamp_ms=0
    )
    said = replace(update(1, SegmentState.COPY_FINISHED), custom_metadata=b"there")
    assert before.updated(said).custom_metadata == b"there"


def test_partition_identity_depends_on_the_topic_id_and_not_its_name() -> None:
    other = PARTITION._replace(topic_id=TopicId(bytes(16)))
    renamed = PARTITION._replace(topic="x")
    assert other.identity != PARTITION.identity == renamed.identity
