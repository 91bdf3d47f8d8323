"""StreamsGroupMetadata, key and value (record type 17); value version 0."""

from __future__ import annotations

from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int32, int64, string


class StreamsGroupMetadataKey(CoordinatorRecord, record_type=17, versions="0"):
    group_id: str = field(string, "0", default="")


class StreamsGroupMetadataValue(CoordinatorRecord, record_type=17, versions="0", flexible="0+"):
    epoch: int = field(int32, "0+", default=0)
    metadata_hash: int = field(int64, "0+", default=0)
    validated_topology_epoch: int = field(int32, "0+", tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        array("LastAssignmentConfig"), "0+", nullable="0+", tag=1, default=FRESH
    )
    stored_description_topology_epoch: int = field(int32, "0+", tag=2, default=-1)
    failed_description_topology_epoch: int = field(int32, "0+", tag=3, default=-1)

    class LastAssignmentConfig(Struct):
        key: str = field(string, "0+", default="")
        value: str = field(string, "0+", default="")
