"""ConsumerGroupCurrentMemberAssignment, key and value (record type 8); value version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    CoordinatorRecord,
    Struct,
    array,
    field,
    int8,
    int32,
    string,
    uuid,
)


class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorRecord, record_type=8, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class ConsumerGroupCurrentMemberAssignmentValue(
    CoordinatorRecord, record_type=8, versions="0", flexible="0+"
):
    member_epoch: int = field(int32, "0+", default=0)
    previous_member_epoch: int = field(int32, "0+", default=0)
    state: int = field(int8, "0+", default=0)
    assigned_partitions: list[TopicPartitions] = field(
        array("TopicPartitions"), "0+", default=FRESH
    )
    partitions_pending_revocation: list[TopicPartitions] = field(
        array("TopicPartitions"), "0+", default=FRESH
    )

    class TopicPartitions(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
        assignment_epochs: list[int] | None = field(
            array(int32), "0+", nullable="0+", tag=0, default=FRESH
        )
