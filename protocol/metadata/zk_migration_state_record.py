"""ZkMigrationStateRecord (record type 21), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int8


class ZkMigrationStateRecord(MetadataRecord, record_type=21, versions="0", flexible="0+"):
    zk_migration_state: int = field(int8, "0+", default=0)
