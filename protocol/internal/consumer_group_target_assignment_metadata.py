"""ConsumerGroupTargetAssignmentMetadata, key and value (record type 6); value version 0."""

from __future__ import annotations

from protocol.schema import CoordinatorRecord, field, int32, int64, string


class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorRecord, record_type=6, versions="0"):
    group_id: str = field(string, "0", default="")


class ConsumerGroupTargetAssignmentMetadataValue(
    CoordinatorRecord, record_type=6, versions="0", flexible="0+"
):
    assignment_epoch: int = field(int32, "0+", default=0)
    assignment_timestamp: int = field(int64, "0+", tag=0, ignorable=True, default=0)
