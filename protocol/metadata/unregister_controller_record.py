"""UnregisterControllerRecord (record type 29), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int32


class UnregisterControllerRecord(MetadataRecord, record_type=29, versions="0", flexible="0+"):
    controller_id: int = field(int32, "0+", default=0)
