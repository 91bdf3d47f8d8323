"""Records of `__remote_log_metadata`, byte for byte as in Kafka 4.3, and their placement.

A record has no key. Its value is a framed metadata record (frame version 1, record type, record
version, fields). All records of a partition are in one partition of the topic, so that they are
read in the order in which they were written.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from protocol.errors import ProtocolError
from protocol.ids import TopicId
from protocol.internal import decode_remote_log_record
from protocol.internal.remote_log_segment_metadata_record import RemoteLogSegmentMetadataRecord
from protocol.internal.remote_log_segment_metadata_snapshot_record import (
    RemoteLogSegmentMetadataSnapshotRecord,
)
from protocol.internal.remote_log_segment_metadata_update_record import (
    RemoteLogSegmentMetadataUpdateRecord,
)
from protocol.internal.remote_partition_delete_metadata_record import (
    RemotePartitionDeleteMetadataRecord,
)
from protocol.murmur2 import murmur2
from protocol.record_frame import encode_framed
from protocol.schema import Buffer, MetadataRecord
from protocol.topic_name import REMOTE_LOG_METADATA_TOPIC
from storage.log.epochs import EpochEntry
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentSnapshot,
    SegmentUpdate,
    TierRecord,
)

METADATA_TOPIC: Final = REMOTE_LOG_METADATA_TOPIC
VERSION: Final = 0

_int32 = struct.Struct(">i")
_halves = struct.Struct(">qq")


def metadata_partition(partition: RemotePartition, partitions: int) -> int:
    """Return which of the topic's `partitions` contains the records of this partition.

    Kafka hashes the two halves of the topic id, the lower first, and the partition's number with
    Java's `Objects.hash`. It places the four bytes of the hash as its clients place keys.
    """
    high, low = _halves.unpack(partition.topic_id)
    hashed = 1
    for part in (_java_long_hash(low), _java_long_hash(high), partition.partition):
        hashed = _int32_of(31 * hashed + part)
    return (murmur2(_int32.pack(hashed)) & 0x7FFFFFFF) % partitions


def _java_long_hash(value: int) -> int:
    unsigned = value & 0xFFFFFFFFFFFFFFFF
    return unsigned ^ unsigned >> 32


def _int32_of(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def encode_record(record: TierRecord) -> bytes:
    """Encode the value of a record."""
    return encode_framed(_message_of(record), VERSION)


def decode_record(value: Buffer) -> TierRecord:
    """Decode a record. Raises ProtocolError for other bytes, and for impossible values."""
    message, _ = decode_remote_log_record(value)
    try:
        return _value_of(message)
    except ValueError as error:
        raise ProtocolError(type(message).__name__, str(error), "values in their ranges") from None


# Values to messages ---------------------------------------------------------------------------


def _message_of(record: TierRecord) -> MetadataRecord:
    if isinstance(record, SegmentSnapshot):
        return _segment_message(record)
    named = _named(record.partition)
    said: dict[str, Any] = {
        "broker_id": record.broker_id,
        "event_timestamp_ms": record.event_timestamp_ms,
    }
    if isinstance(record, PartitionDeletion):
        deletion = RemotePartitionDeleteMetadataRecord
        return deletion(
            topic_id_partition=deletion.TopicIdPartitionEntry(**named),
            remote_partition_delete_state=record.state,
            **said,
        )
    update = RemoteLogSegmentMetadataUpdateRecord
    return update(
        remote_log_segment_id=update.RemoteLogSegmentIdEntry(
            topic_id_partition=update.TopicIdPartitionEntry(**named),
            id=record.segment_id,
        ),
        custom_metadata=record.custom_metadata,
        remote_log_segment_state=record.state,
        **said,
    )


def _segment_message(record: SegmentSnapshot) -> MetadataRecord:
    segment, snapshot = RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataSnapshotRecord
    kind: Any = segment if isinstance(record, RemoteSegment) else snapshot
    entry = kind.SegmentLeaderEpochEntry
    said: dict[str, Any] = {
        "start_offset": record.start_offset,
        "end_offset": record.end_offset,
        "broker_id": record.broker_id,
        "max_timestamp_ms": record.max_timestamp_ms,
        "event_timestamp_ms": record.event_timestamp_ms,
        "segment_leader_epochs": [
            entry(leader_epoch=one.epoch, offset=one.start_offset) for one in record.epochs
        ],
        "segment_size_in_bytes": record.size_bytes,
        "custom_metadata": record.custom_metadata,
        "remote_log_segment_state": record.state,
        "txn_index_empty": record.txn_index_empty,
    }
    if not isinstance(record, RemoteSegment):
        return snapshot(segment_id=record.segment_id, **said)
    partition = segment.TopicIdPartitionEntry(**_named(record.partition))
    named = segment.RemoteLogSegmentIdEntry(topic_id_partition=partition, id=record.segment_id)
    return segment(remote_log_segment_id=named, **said)


def _named(partition: RemotePartition) -> dict[str, Any]:
    return {
        "name": partition.topic,
        "id": partition.topic_id,
        "partition": partition.partition,
    }


# Messages to values ---------------------------------------------------------------------------

_PartitionEntry = (
    RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry
    | RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry
    | RemotePartitionDeleteMetadataRecord.TopicIdPartitionEntry
)


def _value_of(message: MetadataRecord) -> TierRecord:
    if isinstance(message, RemoteLogSegmentMetadataRecord):
        return RemoteSegment(
            partition=_partition_of(message.remote_log_segment_id.topic_id_partition),
            segment_id=message.remote_log_segment_id.id,
            **_description_of(message),
        )
    if isinstance(message, RemoteLogSegmentMetadataSnapshotRecord):
        return SegmentSnapshot(segment_id=message.segment_id, **_description_of(message))
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        return SegmentUpdate(
            partition=_partition_of(message.remote_log_segment_id.topic_id_partition),
            segment_id=message.remote_log_segment_id.id,
            broker_id=message.broker_id,
            event_timestamp_ms=message.event_timestamp_ms,
            custom_metadata=message.custom_metadata,
            state=SegmentState(message.remote_log_segment_state),
        )
    assert isinstance(message, RemotePartitionDeleteMetadataRecord)
    return PartitionDeletion(
        partition=_partition_of(message.topic_id_partition),
        broker_id=message.broker_id,
        event_timestamp_ms=message.event_timestamp_ms,
        state=PartitionDeleteState(message.remote_partition_delete_state),
    )


def _description_of(
    message: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataSnapshotRecord,
) -> dict[str, Any]:
    entries = message.segment_leader_epochs
    return {
        "start_offset": message.start_offset,
        "end_offset": message.end_offset,
        "broker_id": message.broker_id,
        "max_timestamp_ms": message.max_timestamp_ms,
        "event_timestamp_ms": message.event_timestamp_ms,
        # Kafka stores them by epoch, in any order of the record.
        "epochs": tuple(sorted(EpochEntry(one.leader_epoch, one.offset) for one in entries)),
        "size_bytes": message.segment_size_in_bytes,
        "custom_metadata": message.custom_metadata,
        "state": SegmentState(message.remote_log_segment_state),
        "txn_index_empty": message.txn_index_empty,
    }


def _partition_of(entry: _PartitionEntry) -> RemotePartition:
    return RemotePartition(TopicId(entry.id), entry.partition, entry.name)
