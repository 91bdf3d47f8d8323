"""ControllerRegistration (API key 70), version 0."""

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
    string,
    uint16,
    uuid,
)


class ControllerRegistrationResponse(Response, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")


class ControllerRegistrationRequest(
    Request[ControllerRegistrationResponse],
    api_key=70,
    versions="0",
    flexible="0+",
    listeners=("controller",),
):
    controller_id: int = field(int32, "0+", default=0)
    incarnation_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    zk_migration_ready: bool = field(boolean, "0+", default=False)
    listeners: list[Listener] = field(array("Listener"), "0+", default=FRESH)
    features: list[Feature] = field(array("Feature"), "0+", default=FRESH)

    class Listener(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)
        security_protocol: int = field(int16, "0+", default=0)

    class Feature(Struct):
        name: str = field(string, "0+", default="")
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
