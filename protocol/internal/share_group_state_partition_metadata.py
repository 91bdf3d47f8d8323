"""ShareGroupStatePartitionMetadata, key and value (record type 15); value version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int32, string, uuid


class ShareGroupStatePartitionMetadataKey(CoordinatorRecord, record_type=15, versions="0"):
    group_id: str = field(string, "0", default="")


class ShareGroupStatePartitionMetadataValue(
    CoordinatorRecord, record_type=15, versions="0", flexible="0+"
):
    initializing_topics: list[TopicPartitionsInfo] = field(
        array("TopicPartitionsInfo"), "0+", default=FRESH
    )
    initialized_topics: list[TopicPartitionsInfo] = field(
        array("TopicPartitionsInfo"), "0+", default=FRESH
    )
    deleting_topics: list[TopicInfo] = field(array("TopicInfo"), "0+", default=FRESH)

    class TopicPartitionsInfo(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        topic_name: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class TopicInfo(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        topic_name: str = field(string, "0+", default="")
