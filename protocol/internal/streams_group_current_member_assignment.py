"""StreamsGroupCurrentMemberAssignment, key and value (record type 22); value version 0."""

from __future__ import annotations

from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int8, int32, string


class StreamsGroupCurrentMemberAssignmentKey(CoordinatorRecord, record_type=22, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class StreamsGroupCurrentMemberAssignmentValue(
    CoordinatorRecord, record_type=22, versions="0", flexible="0+"
):
    member_epoch: int = field(int32, "0+", default=0)
    previous_member_epoch: int = field(int32, "0+", default=0)
    state: int = field(int8, "0+", default=0)
    active_tasks: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    standby_tasks: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    warmup_tasks: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    active_tasks_pending_revocation: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    standby_tasks_pending_revocation: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)
    warmup_tasks_pending_revocation: list[TaskIds] = field(array("TaskIds"), "0+", default=FRESH)

    class TaskIds(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
        assignment_epochs: list[int] | None = field(
            array(int32), "0+", nullable="0+", tag=0, default=FRESH
        )
