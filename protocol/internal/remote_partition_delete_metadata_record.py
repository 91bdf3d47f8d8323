"""RemotePartitionDeleteMetadataRecord (record type 2), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    MetadataRecord,
    Struct,
    field,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class RemotePartitionDeleteMetadataRecord(
    MetadataRecord, record_type=2, versions="0", flexible="0+"
):
    topic_id_partition: TopicIdPartitionEntry = field(
        struct("TopicIdPartitionEntry"), "0+", default=FRESH
    )
    broker_id: int = field(int32, "0+", default=0)
    event_timestamp_ms: int = field(int64, "0+", default=0)
    remote_partition_delete_state: int = field(int8, "0+", default=0)

    class TopicIdPartitionEntry(Struct):
        name: str = field(string, "0+", default="")
        id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partition: int = field(int32, "0+", default=0)
