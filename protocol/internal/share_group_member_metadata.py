"""ShareGroupMemberMetadata, key and value (record type 10); value version 0."""

from __future__ import annotations

from protocol.schema import FRESH, CoordinatorRecord, array, field, string


class ShareGroupMemberMetadataKey(CoordinatorRecord, record_type=10, versions="0"):
    group_id: str = field(string, "0", default="")
    member_id: str = field(string, "0", default="")


class ShareGroupMemberMetadataValue(CoordinatorRecord, record_type=10, versions="0", flexible="0+"):
    rack_id: str | None = field(string, "0+", nullable="0+", default="")
    client_id: str = field(string, "0+", default="")
    client_host: str = field(string, "0+", default="")
    subscribed_topic_names: list[str] = field(array(string), "0+", default=FRESH)
