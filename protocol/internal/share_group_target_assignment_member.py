"""ShareGroupTargetAssignmentMember, key and value (record type 13); value version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int32, string, uuid


class ShareGroupTargetAssignmentMemberKey(CoordinatorRecord, record_type=13, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class ShareGroupTargetAssignmentMemberValue(
    CoordinatorRecord, record_type=13, versions="0", flexible="0+"
):
    topic_partitions: list[TopicPartition] = field(array("TopicPartition"), "0+", default=FRESH)

    class TopicPartition(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
