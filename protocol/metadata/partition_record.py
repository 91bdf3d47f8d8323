"""PartitionRecord (record type 3), versions 0-2.

The last three fields are Kraftbox's own, as in PartitionChangeRecord: Kafka ignores their private
tags.
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    MetadataRecord,
    Struct,
    array,
    field,
    int8,
    int32,
    int64,
    string,
    uuid,
)


class PartitionRecord(MetadataRecord, record_type=3, versions="0-2", flexible="0+"):
    partition_id: int = field(int32, "0+", default=-1)
    topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    replicas: list[int] = field(array(int32), "0+", default=FRESH)
    isr: list[int] = field(array(int32), "0+", default=FRESH)
    removing_replicas: list[int] = field(array(int32), "0+", default=FRESH)
    adding_replicas: list[int] = field(array(int32), "0+", default=FRESH)
    leader: int = field(int32, "0+", default=-1)
    leader_recovery_state: int = field(int8, "0+", tag=0, default=0)
    leader_epoch: int = field(int32, "0+", default=-1)
    partition_epoch: int = field(int32, "0+", default=-1)
    directories: list[bytes] = field(array(uuid), "1+", default=FRESH)
    eligible_leader_replicas: list[int] | None = field(
        array(int32), "2+", nullable="2+", tag=1, default=None
    )
    last_known_elr: list[int] | None = field(array(int32), "2+", nullable="2+", tag=2, default=None)
    election_kind: int = field(int8, "0+", tag=10000, default=0)
    election_cause: str = field(string, "0+", tag=10001, default="")
    local_logs: list[ReplicaLocalLog] | None = field(
        array("ReplicaLocalLog"), "0+", nullable="0+", tag=10002, default=None
    )

    class ReplicaLocalLog(Struct):
        broker_id: int = field(int32, "0+", default=0)
        broker_epoch: int = field(int64, "0+", default=-1)
        start_timestamp: int = field(int64, "0+", default=-1)
        size_bytes: int = field(int64, "0+", default=-1)
        reported_ms: int = field(int64, "0+", default=-1)
