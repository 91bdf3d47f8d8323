"""Refusals of the codec with their messages, and data that it does not copy.

tests/property and tests/interop check that it encodes and decodes all else correctly.
"""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from protocol.codec import decode, encode, encode_parts
from protocol.errors import EncodeError, ProtocolError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.metadata import PartitionChangeRecord

TopicData = ProduceRequest.TopicProduceData
PartitionData = ProduceRequest.PartitionProduceData


def produce(records: object) -> ProduceRequest:
    partition = PartitionData(index=3, records=records)  # type: ignore[arg-type]
    topic = TopicData(name="t", topic_id=b"i" * 16, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def refused(cls: type, data: bytes, version: int) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(cls, data, version)
    return caught.value


# --- bytes that break the protocol


def test_array_longer_than_the_bytes_left_is_refused_before_memory_is_taken() -> None:
    data = struct.pack(">i", 0x7FFFFFFF) + bytes(100)
    refused(MetadataRequest, data, 0)  # the first use creates the decoder and its twin
    tracemalloc.start()
    error = refused(MetadataRequest, data, 0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000
    assert str(error) == "elements of MetadataRequest v0.topics: 2147483647 (allowed: 0-50)"


def test_array_length_counts_the_smallest_element() -> None:
    three_names = struct.pack(">i", 3) + struct.pack(">h", 0) * 3
    assert len(decode(MetadataRequest, three_names, 0)[0].topics or []) == 3
    assert refused(MetadataRequest, three_names[:-1], 0).value == 3


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_null_and_negative_arrays(length: int) -> None:
    assert "topics" in str(refused(MetadataRequest, struct.pack(">i", length), 0))


def test_null_array_where_allowed() -> None:
    assert decode(MetadataRequest, struct.pack(">i?", -1, True), 4)[0].topics is None
    assert refused(MetadataRequest, struct.pack(">i?", -2, True), 4).value == -2


@pytest.mark.parametrize("length", [-2, -1, 5])
def test_string_lengths(length: int) -> None:
    error = refused(FindCoordinatorRequest, struct.pack(">h", length) + b"abcd", 0)
    assert "FindCoordinatorRequest v0.key" in str(error)


def test_compact_string_longer_than_a_string_may_be() -> None:
    body = b"\x81\x80\x02" + b"x" * 0x8000  # 32768 + 1
    error = refused(FindCoordinatorRequest, body + b"\0\0", 3)
    assert str(error) == "length of FindCoordinatorRequest v3.key: 32768 (allowed: 0-32767)"
    longest = FindCoordinatorRequest(key="x" * 0x7FFF)
    assert decode(FindCoordinatorRequest, encode(longest, 3), 3)[0] == longest


def test_compact_null_where_not_nullable() -> None:
    assert str(refused(FindCoordinatorRequest, b"\0\0\0", 3)) == (
        "FindCoordinatorRequest v3.key: None (allowed: null is not allowed)"
    )


def test_varint_of_six_bytes() -> None:
    error = refused(FindCoordinatorRequest, b"\x80\x80\x80\x80\x80\x01" + bytes(9), 3)
    assert "more than 5 bytes" in str(error)


def test_varint_above_31_bits() -> None:
    assert refused(FindCoordinatorRequest, b"\xff\xff\xff\xff\x0f" + bytes(9), 3).value == 2**32 - 1


def test_overlong_varints_are_read_as_kafka_reads_them() -> None:
    assert decode(FindCoordinatorRequest, b"\x82\x00x\x00\x80\x00", 3)[0].key == "x"


def test_broken_utf8_is_replaced() -> None:
    request, _ = decode(FindCoordinatorRequest, b"\x00\x03a\xff\xfe", 0)
    assert request.key == "a\ufffd\ufffd"


@pytest.mark.parametrize(
    ("tags", "what"),
    [
        (b"\x02\x05\x00\x05\x00", "ApiVersionsRequest v3 tag"),
        (b"\x02\x06\x00\x05\x00", "ApiVersionsRequest v3 tag"),
        (b"\x01\x05\x02x", "ApiVersionsRequest v3 tag 5"),
        (b"\x02\x05\x01x", "ApiVersionsRequest v3 tag"),
        (b"\xff\xff\xff\xff\x07", "ApiVersionsRequest v3 tag"),
    ],
)
def test_tag_sections(tags: bytes, what: str) -> None:
    assert what in str(refused(ApiVersionsRequest, b"\x02a\x02b" + tags, 3))


def test_size_of_a_known_tag_must_be_true() -> None:
    record = PartitionChangeRecord(topic_id=b"t" * 16, isr=[1, 2])
    data = bytearray(encode(record, 0))
    position = data.index(b"\x01\x00\x09\x03")  # one tag, tag 0, nine bytes, two elements
    data[position + 2] = 8
    assert "size of tag 0" in str(refused(PartitionChangeRecord, bytes(data), 0))


def test_presence_of_a_struct() -> None:
    request = DescribeTopicPartitionsRequest(cursor=None)
    data = encode(request, 0)
    assert data.endswith(b"\xff\x00")
    assert decode(DescribeTopicPartitionsRequest, data, 0)[0].cursor is None
    error = refused(DescribeTopicPartitionsRequest, data[:-2] + b"\x02\x00", 0)
    assert error.what == "presence of DescribeTopicPartitionsRequest v0.cursor"


def test_unknown_version() -> None:
    assert str(refused(FetchRequest, b"", 99)) == "version of FetchRequest: 99 (allowed: 4-19)"


def test_unknown_tags_are_kept_and_written_back() -> None:
    data = b"\x02a\x02b" + b"\x02\x05\x01x\x07\x00"
    request, end = decode(ApiVersionsRequest, data, 3)
    assert end == len(data)
    assert request.unknown_tags == {5: b"x", 7: b""}
    assert encode(request, 3) == data


def test_trailing_bytes_are_left_to_the_caller() -> None:
    data = encode(HeartbeatRequest(group_id="g", member_id="m"), 0)
    assert decode(HeartbeatRequest, data + b"more", 0)[1] == len(data)


# --- messages that cannot be written


@pytest.mark.parametrize(
    ("request_", "version", "text"),
    [
        (
            FetchRequest(max_wait_ms=2**31),
            12,
            "FetchRequest v12.max_wait_ms: 2147483648 (allowed: a value of int32)",
        ),
        (
            FetchRequest(rack_id=None),  # type: ignore[arg-type]
            12,
            "FetchRequest v12.rack_id: None (allowed: null is not allowed)",
        ),
        (
            FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=b"short")]),
            13,
            "FetchRequest v13.topics[0].topic_id: b'short' (allowed: 16 bytes)",
        ),
        (
            FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=4)),
            14,
            "FetchRequest v14.replica_state: FetchRequest.ReplicaState(replica_id=4, "
            "replica_epoch=-1) (allowed: only in versions 15+)",
        ),
        (
            HeartbeatRequest(group_instance_id="static"),
            2,
            "HeartbeatRequest v2.group_instance_id: 'static' (allowed: only in versions 3+)",
        ),
        (
            HeartbeatRequest(group_id="x" * 0x8000),
            4,
            "length of HeartbeatRequest v4.group_id: 32768 (allowed: 0-32767)",
        ),
        (
            HeartbeatRequest(group_id="\ud800"),
            4,
            "HeartbeatRequest v4.group_id: '\\ud800' (allowed: a string encodable as UTF-8)",
        ),
        (
            HeartbeatRequest(unknown_tags={1: b""}),
            3,
            "HeartbeatRequest v3.unknown_tags: {1: b''} (allowed: none in this version)",
        ),
        (
            ApiVersionsRequest(),
            9,
            "version of ApiVersionsRequest: 9 (allowed: 0-5)",
        ),
        (
            PartitionChangeRecord(isr=[1], unknown_tags={0: b""}),
            0,
            "PartitionChangeRecord v0.unknown_tags: {0: b''} (allowed: none of [0])",
        ),
    ],
)
def test_refusals_name_field_value_and_limit(
    request_: FetchRequest, version: int, text: str
) -> None:
    for write in (encode, encode_parts):
        with pytest.raises(EncodeError) as caught:
            write(request_, version)
        assert str(caught.value) == text


def test_ignorable_values_are_dropped_in_versions_without_them() -> None:
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)
    with pytest.raises(EncodeError):
        encode(CreateTopicsRequest(topics=None), 2)  # type: ignore[arg-type]


# --- buffers


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_not_copied_when_written(version: int) -> None:
    records = bytes(100_000)
    request = produce(records)
    if version < 13:
        request.topic_data[0].topic_id = bytes(16)
    parts = encode_parts(request, version, b"\0\0\0\0head")
    assert any(part is records for part in parts)
    assert isinstance(parts[0], bytearray) and parts[0][:8] == b"\0\0\0\0head"
    assert b"".join(parts[:1])[8:] + b"".join(parts[1:]) == encode(request, version)


def test_small_records_travel_with_their_surroundings() -> None:
    assert len(encode_parts(produce(bytes(100)), 13)) == 1


def test_records_in_pieces() -> None:
    pieces = [bytes(1000), memoryview(b"x" * 2000), b"", bytearray(b"tiny")]
    whole = b"".join(pieces)
    assert encode(produce(pieces), 13) == encode(produce(whole), 13)
    assert b"".join(encode_parts(produce(pieces), 9 + 4)) == encode(produce(whole), 13)


def test_null_records() -> None:
    request, _ = decode(ProduceRequest, encode(produce(None), 13), 13)
    assert request.topic_data[0].partition_data[0].records is None


def test_records_are_slices_of_the_buffer_when_read() -> None:
    buffer = bytearray(encode(produce(b"a" * 1000), 13))
    request, _ = decode(ProduceRequest, buffer, 13)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and records.obj is buffer
    topic_id = request.topic_data[0].topic_id
    assert isinstance(topic_id, bytes)
    records.release()


def test_responses_carry_tagged_structs_only_when_set() -> None:
    partition = FetchResponse.PartitionData(records=None, aborted_transactions=None)
    topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
    response = FetchResponse(responses=[topic])
    plain = encode(response, 17)
    partition.current_leader.leader_id = 5
    with_leader = encode(response, 17)
    assert len(with_leader) == len(plain) + 2 + 9
    assert decode(FetchResponse, with_leader, 17)[0] == response
