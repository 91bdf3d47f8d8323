"""OffsetCommit, key and value (record type 1); value versions 0-4."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import CoordinatorRecord, field, int32, int64, string, uuid


class OffsetCommitKey(CoordinatorRecord, record_type=1, versions="0"):
    group: str = field(string, "0", default="")
    topic: str = field(string, "0", default="")
    partition: int = field(int32, "0", default=0)


class OffsetCommitValue(CoordinatorRecord, record_type=1, versions="0-4", flexible="4+"):
    offset: int = field(int64, "0+", default=0)
    leader_epoch: int = field(int32, "3+", ignorable=True, default=-1)
    metadata: str = field(string, "0+", default="")
    commit_timestamp: int = field(int64, "0+", default=0)
    expire_timestamp: int = field(int64, "1", ignorable=True, default=-1)
    topic_id: bytes = field(uuid, "4+", tag=0, ignorable=True, default=ZERO_UUID)
