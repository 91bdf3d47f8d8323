"""ConsumerGroupPartitionMetadata, key and value (record type 4); value version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int32, string, uuid


class ConsumerGroupPartitionMetadataKey(CoordinatorRecord, record_type=4, versions="0"):
    group_id: str = field(string, "0", default="")


class ConsumerGroupPartitionMetadataValue(
    CoordinatorRecord, record_type=4, versions="0", flexible="0+"
):
    topics: list[TopicMetadata] = field(array("TopicMetadata"), "0+", default=FRESH)

    class TopicMetadata(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        topic_name: str = field(string, "0+", default="")
        num_partitions: int = field(int32, "0+", default=0)
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = field(
            array("PartitionMetadata"), "0+", default=FRESH
        )

    class PartitionMetadata(Struct):
        partition: int = field(int32, "0+", default=0)
        racks: list[str] = field(array(string), "0+", default=FRESH)
