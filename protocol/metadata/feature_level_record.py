"""FeatureLevelRecord (record type 12), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int16, string


class FeatureLevelRecord(MetadataRecord, record_type=12, versions="0", flexible="0+"):
    name: str = field(string, "0+", default="")
    feature_level: int = field(int16, "0+", default=0)
