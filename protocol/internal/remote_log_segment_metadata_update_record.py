"""RemoteLogSegmentMetadataUpdateRecord (record type 1), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    MetadataRecord,
    Struct,
    bytes_,
    field,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class RemoteLogSegmentMetadataUpdateRecord(
    MetadataRecord, record_type=1, versions="0", flexible="0+"
):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field(
        struct("RemoteLogSegmentIdEntry"), "0+", default=FRESH
    )
    broker_id: int = field(int32, "0+", default=0)
    event_timestamp_ms: int = field(int64, "0+", default=0)
    custom_metadata: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(int8, "0+", default=0)

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry = field(
            struct("TopicIdPartitionEntry"), "0+", default=FRESH
        )
        id: bytes = field(uuid, "0+", default=ZERO_UUID)

    class TopicIdPartitionEntry(Struct):
        name: str = field(string, "0+", default="")
        id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partition: int = field(int32, "0+", default=0)
