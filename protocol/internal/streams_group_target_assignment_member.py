"""StreamsGroupTargetAssignmentMember, key and value (record type 21); value version 0."""

from __future__ import annotations

from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int32, string


class StreamsGroupTargetAssignmentMemberKey(CoordinatorRecord, record_type=21, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class StreamsGroupTargetAssignmentMemberValue(
    CoordinatorRecord, record_type=21, versions="0", flexible="0+"
):
    active_tasks: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    standby_tasks: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    warmup_tasks: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)

    class TaskIds(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
