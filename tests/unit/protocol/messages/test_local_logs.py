"""Fetch 19 and AlterPartition 4 (KIP-1303), compared with hand-written bytes.

Fields added in the last version stand at the end of their struct; all fields before them are as in
the version that Kafka has.
"""

from __future__ import annotations

import struct

import pytest

from protocol.codec import decode, encode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.fetch import FetchRequest
from protocol.schema import Message

TOPIC = bytes(range(16))
DIRECTORY = bytes(range(16, 32))
START_MS, SIZE = 1_790_000_000_123, 7_654_321_000

PARTITION = FetchRequest.FetchPartition(
    partition=3,
    current_leader_epoch=4,
    fetch_offset=5_000_000_000,
    last_fetched_epoch=2,
    log_start_offset=6,
    partition_max_bytes=1 << 20,
    replica_directory_id=DIRECTORY,
    high_watermark=4_999_999_999,
    local_log_start_timestamp=START_MS,
    local_log_size_bytes=SIZE,
)
FETCH = FetchRequest(
    replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=77),
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1 << 24,
    session_id=8,
    session_epoch=9,
    topics=[FetchRequest.FetchTopic(topic_id=TOPIC, partitions=[PARTITION])],
    forgotten_topics_data=[FetchRequest.ForgottenTopic(topic_id=TOPIC, partitions=[1])],
    rack_id="r",
)


def fetch_bytes(version: int) -> bytes:
    """Return the request above as hand-written bytes: compact arrays encode their length plus
    one."""
    local = struct.pack(">qq", START_MS, SIZE) if version == 19 else b""
    partition = (
        struct.pack(">iiqiqi", 3, 4, 5_000_000_000, 2, 6, 1 << 20)
        + local
        + b"\x02"  # two tagged fields
        + b"\x00\x10"
        + DIRECTORY
        + b"\x01\x08"
        + struct.pack(">q", 4_999_999_999)
    )
    return (
        struct.pack(">iiibii", 500, 1, 1 << 24, 0, 8, 9)
        + b"\x02"
        + TOPIC
        + b"\x02"
        + partition
        + b"\x00"
        + b"\x02"
        + TOPIC
        + b"\x02"
        + struct.pack(">i", 1)
        + b"\x00"
        + b"\x02r"
        + b"\x01\x01\x0d"  # one tagged field: the replica's state
        + struct.pack(">iq", 2, 77)
        + b"\x00"
    )


MEMBERS = [
    AlterPartitionRequest.BrokerState(
        broker_id=1, broker_epoch=100, local_log_start_timestamp=START_MS, local_log_size_bytes=SIZE
    ),
    AlterPartitionRequest.BrokerState(broker_id=2, broker_epoch=101),
]
ALTER = AlterPartitionRequest(
    broker_id=1,
    broker_epoch=100,
    topics=[
        AlterPartitionRequest.TopicData(
            topic_id=TOPIC,
            partitions=[
                AlterPartitionRequest.PartitionData(
                    partition_index=3,
                    leader_epoch=4,
                    new_isr_with_epochs=MEMBERS,
                    leader_recovery_state=1,
                    partition_epoch=6,
                )
            ],
        )
    ],
)


def alter_bytes(version: int) -> bytes:
    def local(start_ms: int, size: int) -> bytes:
        return struct.pack(">qq", start_ms, size) if version == 4 else b""

    members = (
        struct.pack(">iq", 1, 100)
        + local(START_MS, SIZE)
        + b"\x00"
        + struct.pack(">iq", 2, 101)
        + local(-1, -1)
        + b"\x00"
    )
    return (
        struct.pack(">iq", 1, 100)
        + b"\x02"
        + TOPIC
        + b"\x02"
        + struct.pack(">ii", 3, 4)
        + b"\x03"
        + members
        + struct.pack(">bi", 1, 6)
        + bytes(3)
    )


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        (FETCH, 18, fetch_bytes(18)),
        (FETCH, 19, fetch_bytes(19)),
        (ALTER, 3, alter_bytes(3)),
        (ALTER, 4, alter_bytes(4)),
    ],
)
def test_bytes(message: Message, version: int, expected: bytes) -> None:
    assert bytes(encode(message, version)) == expected
    read, end = decode(type(message), expected, version, 0)
    assert end == len(expected)
    if version in type(message).UNSTABLE:  # type: ignore[attr-defined]
        assert read == message
    else:
        assert read != message  # the older version does not carry it
        assert bytes(encode(read, version)) == expected


def test_a_partition_takes_sixteen_bytes_more() -> None:
    assert len(fetch_bytes(19)) - len(fetch_bytes(18)) == 16
