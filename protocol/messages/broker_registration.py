"""BrokerRegistration (API key 62), versions 0-4."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
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


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)


class BrokerRegistrationRequest(
    Request[BrokerRegistrationResponse],
    api_key=62,
    versions="0-4",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    cluster_id: str = field(string, "0+", default="")
    incarnation_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array("Listener"), "0+", default=FRESH)
    features: list[Feature] = field(array("Feature"), "0+", default=FRESH)
    rack: str | None = field(string, "0+", nullable="0+", default="")
    is_migrating_zk_broker: bool = field(boolean, "1+", default=False)
    log_dirs: list[bytes] = field(array(uuid), "2+", ignorable=True, default=FRESH)
    previous_broker_epoch: int = field(int64, "3+", ignorable=True, default=-1)

    class Listener(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)
        security_protocol: int = field(int16, "0+", default=0)

    class Feature(Struct):
        name: str = field(string, "0+", default="")
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
