"""ConfigRecord (record type 4), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int8, string


class ConfigRecord(MetadataRecord, record_type=4, versions="0", flexible="0+"):
    resource_type: int = field(int8, "0+", default=0)
    resource_name: str = field(string, "0+", default="")
    name: str = field(string, "0+", default="")
    value: str | None = field(string, "0+", nullable="0+", default="")
