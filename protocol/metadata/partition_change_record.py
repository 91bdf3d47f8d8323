"""PartitionChangeRecord (record type 5), versions 0-2.

The last three fields are Kraftbox's own. Their tags are private (10000 and up), so Kafka ignores
them.

`election_kind` and `election_cause` document why a leader changed, for readers of the log; replay
does not use them. They are written with every change of the leader field. The kind is an
`ElectedAs` of the image, the cause one of the values of `controller.elections.cause`.

`local_logs` contains the local-log stats of the replicas (KIP-1303): always all that is known of
the partition, never a difference. A node that does not know the tag keeps the newest value it has
seen and writes it back. For the same reason its encoding is the same as in PartitionRecord. None
leaves the known stats unchanged.
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import MetadataRecord, Struct, array, field, int8, int32, int64, string, uuid


class PartitionChangeRecord(MetadataRecord, record_type=5, versions="0-2", flexible="0+"):
    partition_id: int = field(int32, "0+", default=-1)
    topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    isr: list[int] | None = field(array(int32), "0+", nullable="0+", tag=0, default=None)
    leader: int = field(int32, "0+", tag=1, default=-2)
    replicas: list[int] | None = field(array(int32), "0+", nullable="0+", tag=2, default=None)
    removing_replicas: list[int] | None = field(
        array(int32), "0+", nullable="0+", tag=3, default=None
    )
    adding_replicas: list[int] | None = field(
        array(int32), "0+", nullable="0+", tag=4, default=None
    )
    leader_recovery_state: int = field(int8, "0+", tag=5, default=-1)
    directories: list[bytes] | None = field(array(uuid), "1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[int] | None = field(
        array(int32), "2+", nullable="2+", tag=6, default=None
    )
    last_known_elr: list[int] | None = field(array(int32), "2+", nullable="2+", tag=7, default=None)
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
