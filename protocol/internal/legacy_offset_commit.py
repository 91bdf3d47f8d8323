"""LegacyOffsetCommit, key and value (record type 0); value version 0."""

from __future__ import annotations

from protocol.schema import CoordinatorRecord, field, int32, int64, string


class LegacyOffsetCommitKey(CoordinatorRecord, record_type=0, versions="0"):
    group: str = field(string, "0", default="")
    topic: str = field(string, "0", default="")
    partition: int = field(int32, "0", default=0)


class LegacyOffsetCommitValue(CoordinatorRecord, record_type=0, versions="0"):
    offset: int = field(int64, "0", default=0)
    metadata: str = field(string, "0", default="")
    commit_timestamp: int = field(int64, "0", default=0)
