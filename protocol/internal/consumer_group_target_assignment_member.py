"""ConsumerGroupTargetAssignmentMember, key and value (record type 7); value version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int32, string, uuid


class ConsumerGroupTargetAssignmentMemberKey(CoordinatorRecord, record_type=7, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class ConsumerGroupTargetAssignmentMemberValue(
    CoordinatorRecord, record_type=7, versions="0", flexible="0+"
):
    topic_partitions: list[TopicPartition] = field(array("TopicPartition"), "0+", default=FRESH)

    class TopicPartition(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
