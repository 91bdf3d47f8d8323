"""ClientQuotaRecord (record type 14), version 0."""

from __future__ import annotations

from protocol.schema import FRESH, MetadataRecord, Struct, array, boolean, field, float64, string


class ClientQuotaRecord(MetadataRecord, record_type=14, versions="0", flexible="0+"):
    entity: list[EntityData] = field(array("EntityData"), "0+", default=FRESH)
    key: str = field(string, "0+", default="")
    value: float = field(float64, "0+", default=0.0)
    remove: bool = field(boolean, "0+", default=False)

    class EntityData(Struct):
        entity_type: str = field(string, "0+", default="")
        entity_name: str | None = field(string, "0+", nullable="0+", default="")
