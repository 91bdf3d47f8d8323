"""StreamsGroupMemberMetadata, key and value (record type 19); value version 0."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    CoordinatorRecord,
    Struct,
    array,
    field,
    int32,
    string,
    struct,
    uint16,
)


class StreamsGroupMemberMetadataKey(CoordinatorRecord, record_type=19, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class StreamsGroupMemberMetadataValue(
    CoordinatorRecord, record_type=19, versions="0", flexible="0+"
):
    instance_id: str | None = field(string, "0+", nullable="0+", default="")
    rack_id: str | None = field(string, "0+", nullable="0+", default="")
    client_id: str = field(string, "0+", default="")
    client_host: str = field(string, "0+", default="")
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    topology_epoch: int = field(int32, "0+", default=0)
    process_id: str = field(string, "0+", default="")
    user_endpoint: Endpoint | None = field(struct("Endpoint"), "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field(array("KeyValue"), "0+", default=FRESH)

    class Endpoint(Struct):
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)

    class KeyValue(Struct):
        key: str = field(string, "0+", default="")
        value: str = field(string, "0+", default="")
