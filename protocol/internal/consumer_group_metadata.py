"""ConsumerGroupMetadata, key and value (record type 3); value version 0."""

from __future__ import annotations

from protocol.schema import CoordinatorRecord, field, int32, int64, string


class ConsumerGroupMetadataKey(CoordinatorRecord, record_type=3, versions="0"):
    group_id: str = field(string, "0", default="")


class ConsumerGroupMetadataValue(CoordinatorRecord, record_type=3, versions="0", flexible="0+"):
    epoch: int = field(int32, "0+", default=0)
    metadata_hash: int = field(int64, "0+", tag=0, default=0)
