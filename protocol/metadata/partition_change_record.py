"""PartitionChangeRecord (record type 5), versions 0-2.

The last two fields are ours: why a leader changed, for whoever reads the log later. Their tags are
private (10000 and up), so Kafka reads past them, and no replay looks at them. Written with every
change that names a leader; `election_kind` is an `ElectedAs` of the image, `election_cause` a word
of `controller.elections.cause`.
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import MetadataRecord, array, field, int8, int32, string, uuid


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
