"""UnfenceBrokerRecord (record type 8), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int32, int64


class UnfenceBrokerRecord(MetadataRecord, record_type=8, versions="0", flexible="0+"):
    id: int = field(int32, "0+", default=0)
    epoch: int = field(int64, "0+", default=0)
