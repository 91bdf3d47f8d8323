"""ConsumerGroupMemberMetadata, key and value (record type 5); value version 0."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    CoordinatorRecord,
    Struct,
    array,
    bytes_,
    field,
    int32,
    string,
    struct,
)


class ConsumerGroupMemberMetadataKey(CoordinatorRecord, record_type=5, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class ConsumerGroupMemberMetadataValue(
    CoordinatorRecord, record_type=5, versions="0", flexible="0+"
):
    instance_id: str | None = field(string, "0+", nullable="0+", default="")
    rack_id: str | None = field(string, "0+", nullable="0+", default="")
    client_id: str = field(string, "0+", default="")
    client_host: str = field(string, "0+", default="")
    subscribed_topic_names: list[str] = field(array(string), "0+", default=FRESH)
    subscribed_topic_regex: str | None = field(string, "0+", nullable="0+", default="")
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    server_assignor: str | None = field(string, "0+", nullable="0+", default="")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        struct("ClassicMemberMetadata"), "0+", nullable="0+", tag=0, default=FRESH
    )

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int = field(int32, "0+", default=0)
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = field(
            array("ClassicProtocol"), "0+", default=FRESH
        )

    class ClassicProtocol(Struct):
        name: str = field(string, "0+", default="")
        metadata: bytes = field(bytes_, "0+", default=b"")
