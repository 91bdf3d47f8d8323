"""AccessControlEntryRecord (record type 18), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import MetadataRecord, field, int8, string, uuid


class AccessControlEntryRecord(MetadataRecord, record_type=18, versions="0", flexible="0+"):
    id: bytes = field(uuid, "0+", default=ZERO_UUID)
    resource_type: int = field(int8, "0+", default=0)
    resource_name: str = field(string, "0+", default="")
    pattern_type: int = field(int8, "0+", default=0)
    principal: str = field(string, "0+", default="")
    host: str = field(string, "0+", default="")
    operation: int = field(int8, "0+", default=0)
    permission_type: int = field(int8, "0+", default=0)
