"""RegisterBrokerRecord (record type 0), versions 0-4."""

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
    int64,
    string,
    uint16,
    uuid,
)


class RegisterBrokerRecord(MetadataRecord, record_type=0, versions="0-4", flexible="0+"):
    broker_id: int = field(int32, "0+", default=0)
    is_migrating_zk_broker: bool = field(boolean, "2+", default=False)
    incarnation_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    broker_epoch: int = field(int64, "0+", default=0)
    end_points: list[BrokerEndpoint] = field(array("BrokerEndpoint"), "0+", default=FRESH)
    features: list[BrokerFeature] = field(array("BrokerFeature"), "0+", default=FRESH)
    rack: str | None = field(string, "0+", nullable="0+", default="")
    fenced: bool = field(boolean, "0+", default=True)
    in_controlled_shutdown: bool = field(boolean, "1+", default=False)
    log_dirs: list[bytes] = field(array(uuid), "3+", tag=0, default=FRESH)
    cordoned_log_dirs: list[bytes] | None = field(
        array(uuid), "4+", nullable="4+", tag=1, default=None
    )

    class BrokerEndpoint(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)
        security_protocol: int = field(int16, "0+", default=0)

    class BrokerFeature(Struct):
        name: str = field(string, "0+", default="")
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
