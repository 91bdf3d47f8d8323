"""CreateAcls (API key 30), versions 1-3."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    string,
)


class CreateAclsResponse(Response, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[AclCreationResult] = field(array("AclCreationResult"), "0+", default=FRESH)

    class AclCreationResult(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")


class CreateAclsRequest(
    Request[CreateAclsResponse],
    api_key=30,
    versions="1-3",
    flexible="2+",
    listeners=("broker", "controller"),
):
    creations: list[AclCreation] = field(array("AclCreation"), "0+", default=FRESH)

    class AclCreation(Struct):
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        resource_pattern_type: int = field(int8, "1+", default=3)
        principal: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        operation: int = field(int8, "0+", default=0)
        permission_type: int = field(int8, "0+", default=0)
