"""RegisterControllerRecord (record type 27), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    MetadataRecord,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    string,
    uint16,
    uuid,
)


class RegisterControllerRecord(MetadataRecord, record_type=27, versions="0", flexible="0+"):
    controller_id: int = field(int32, "0+", default=0)
    incarnation_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    zk_migration_ready: bool = field(boolean, "0+", default=False)
    end_points: list[ControllerEndpoint] = field(array("ControllerEndpoint"), "0+", default=FRESH)
    features: list[ControllerFeature] = field(array("ControllerFeature"), "0+", default=FRESH)

    class ControllerEndpoint(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)
        security_protocol: int = field(int16, "0+", default=0)

    class ControllerFeature(Struct):
        name: str = field(string, "0+", default="")
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
