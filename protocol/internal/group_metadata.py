"""GroupMetadata, key and value (record type 2); value versions 0-4."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    CoordinatorRecord,
    Struct,
    array,
    bytes_,
    field,
    int32,
    int64,
    string,
)


class GroupMetadataKey(CoordinatorRecord, record_type=2, versions="0"):
    group: str = field(string, "0", default="")


class GroupMetadataValue(CoordinatorRecord, record_type=2, versions="0-4", flexible="4+"):
    protocol_type: str = field(string, "0+", default="")
    generation: int = field(int32, "0+", default=0)
    protocol: str | None = field(string, "0+", nullable="0+", default="")
    leader: str | None = field(string, "0+", nullable="0+", default="")
    current_state_timestamp: int = field(int64, "2+", ignorable=True, default=-1)
    members: list[MemberMetadata] = field(array("MemberMetadata"), "0+", default=FRESH)

    class MemberMetadata(Struct):
        member_id: str = field(string, "0+", default="")
        group_instance_id: str | None = field(
            string, "3+", nullable="3+", ignorable=True, default=None
        )
        client_id: str = field(string, "0+", default="")
        client_host: str = field(string, "0+", default="")
        rebalance_timeout: int = field(int32, "1+", ignorable=True, default=-1)
        session_timeout: int = field(int32, "0+", default=0)
        subscription: bytes = field(bytes_, "0+", default=b"")
        assignment: bytes = field(bytes_, "0+", default=b"")
