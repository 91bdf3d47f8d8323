"""ClearElrRecord (record type 28), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, string


class ClearElrRecord(MetadataRecord, record_type=28, versions="0", flexible="0+"):
    topic_name: str = field(string, "0+", default="")
