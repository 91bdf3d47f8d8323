"""Records of `__remote_log_metadata`, to the byte as Kafka 4.3 writes them, and where they go.

A record has no key. Its value is a metadata record in its frame (frame version 1, record type,
record version, fields). All records of a partition are in one partition of the topic, so that they
are read in the order in which they were written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

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

METADATA_TOPIC: Final = "__remote_log_metadata"
VERSION: Final = 0

_int32 = struct.Struct(">i")
_halves = struct.Struct(">qq")


def metadata_partition(partition: RemotePartition, partitions: int) -> int:
    """Which of the topic's `partitions` has the records of this partition.

    Kafka hashes the two halves of the topic id, the lower first, and the partition's number with
    Java's `Objects.hash`, and places the four bytes of that as its clients place keys.
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
    """The value of a record."""
    return encode_framed(_message_of(record), VERSION)


def decode_record(value: Buffer) -> TierRecord:
    """Raises ProtocolError for what is no record, and for one that says what cannot be."""
    message, _ = decode_remote_log_record(value)
    try:
        return _value_of(message)
    except ValueError as error:
        raise ProtocolError(type(message).__name__, str(error), "values that can be") from None


# Values to messages ---------------------------------------------------------------------------


def _message_of(record: TierRecord) -> MetadataRecord:
    if isinstance(record, RemoteSegment):
        segment = RemoteLogSegmentMetadataRecord
        return segment(
            remote_log_segment_id=segment.RemoteLogSegmentIdEntry(
                topic_id_partition=segment.TopicIdPartitionEntry(
                    name=record.partition.topic,
                    id=record.partition.topic_id,
                    partition=record.partition.partition,
                ),
                id=record.segment_id,
            ),
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            broker_id=record.broker_id,
            max_timestamp_ms=record.max_timestamp_ms,
            event_timestamp_ms=record.event_timestamp_ms,
            segment_leader_epochs=[
                segment.SegmentLeaderEpochEntry(leader_epoch=entry.epoch, offset=entry.start_offset)
                for entry in record.epochs
            ],
            segment_size_in_bytes=record.size_bytes,
            custom_metadata=record.custom_metadata,
            remote_log_segment_state=record.state,
            txn_index_empty=record.txn_index_empty,
        )
    if isinstance(record, SegmentUpdate):
        update = RemoteLogSegmentMetadataUpdateRecord
        return update(
            remote_log_segment_id=update.RemoteLogSegmentIdEntry(
                topic_id_partition=update.TopicIdPartitionEntry(
                    name=record.partition.topic,
                    id=record.partition.topic_id,
                    partition=record.partition.partition,
                ),
                id=record.segment_id,
            ),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            custom_metadata=record.custom_metadata,
            remote_log_segment_state=record.state,
        )
    if isinstance(record, PartitionDeletion):
        deletion = RemotePartitionDeleteMetadataRecord
        return deletion(
            topic_id_partition=deletion.TopicIdPartitionEntry(
                name=record.partition.topic,
                id=record.partition.topic_id,
                partition=record.partition.partition,
            ),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            remote_partition_delete_state=record.state,
        )
    return _snapshot_message(record)


def _snapshot_message(record: SegmentSnapshot) -> RemoteLogSegmentMetadataSnapshotRecord:
    snapshot = RemoteLogSegmentMetadataSnapshotRecord
    return snapshot(
        segment_id=record.segment_id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        segment_leader_epochs=[
            snapshot.SegmentLeaderEpochEntry(leader_epoch=entry.epoch, offset=entry.start_offset)
            for entry in record.epochs
        ],
        segment_size_in_bytes=record.size_bytes,
        custom_metadata=record.custom_metadata,
        remote_log_segment_state=record.state,
        txn_index_empty=record.txn_index_empty,
    )


# Messages to values ---------------------------------------------------------------------------

_PartitionEntry = (
    RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry
    | RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry
    | RemotePartitionDeleteMetadataRecord.TopicIdPartitionEntry
)
_EpochEntries = (
    Sequence[RemoteLogSegmentMetadataRecord.SegmentLeaderEpochEntry]
    | Sequence[RemoteLogSegmentMetadataSnapshotRecord.SegmentLeaderEpochEntry]
)


def _value_of(message: MetadataRecord) -> TierRecord:
    if isinstance(message, RemoteLogSegmentMetadataRecord):
        return RemoteSegment(
            partition=_partition_of(message.remote_log_segment_id.topic_id_partition),
            segment_id=message.remote_log_segment_id.id,
            start_offset=message.start_offset,
            end_offset=message.end_offset,
            broker_id=message.broker_id,
            max_timestamp_ms=message.max_timestamp_ms,
            event_timestamp_ms=message.event_timestamp_ms,
            epochs=_epochs_of(message.segment_leader_epochs),
            size_bytes=message.segment_size_in_bytes,
            custom_metadata=message.custom_metadata,
            state=SegmentState(message.remote_log_segment_state),
            txn_index_empty=message.txn_index_empty,
        )
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        return SegmentUpdate(
            partition=_partition_of(message.remote_log_segment_id.topic_id_partition),
            segment_id=message.remote_log_segment_id.id,
            broker_id=message.broker_id,
            event_timestamp_ms=message.event_timestamp_ms,
            custom_metadata=message.custom_metadata,
            state=SegmentState(message.remote_log_segment_state),
        )
    if isinstance(message, RemotePartitionDeleteMetadataRecord):
        return PartitionDeletion(
            partition=_partition_of(message.topic_id_partition),
            broker_id=message.broker_id,
            event_timestamp_ms=message.event_timestamp_ms,
            state=PartitionDeleteState(message.remote_partition_delete_state),
        )
    assert isinstance(message, RemoteLogSegmentMetadataSnapshotRecord)
    return SegmentSnapshot(
        segment_id=message.segment_id,
        start_offset=message.start_offset,
        end_offset=message.end_offset,
        broker_id=message.broker_id,
        max_timestamp_ms=message.max_timestamp_ms,
        event_timestamp_ms=message.event_timestamp_ms,
        epochs=_epochs_of(message.segment_leader_epochs),
        size_bytes=message.segment_size_in_bytes,
        custom_metadata=message.custom_metadata,
        state=SegmentState(message.remote_log_segment_state),
        txn_index_empty=message.txn_index_empty,
    )


def _partition_of(entry: _PartitionEntry) -> RemotePartition:
    return RemotePartition(TopicId(entry.id), entry.partition, entry.name)


def _epochs_of(entries: _EpochEntries) -> tuple[EpochEntry, ...]:
    # Kafka keeps them by epoch, whatever their order in the record.
    return tuple(sorted(EpochEntry(entry.leader_epoch, entry.offset) for entry in entries))
