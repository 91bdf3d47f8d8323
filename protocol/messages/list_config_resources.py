"""ListConfigResources (API key 74), versions 0-1."""

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


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    config_resources: list[ConfigResource] = field(array("ConfigResource"), "0+", default=FRESH)

    class ConfigResource(Struct):
        resource_name: str = field(string, "0+", default="")
        resource_type: int = field(int8, "1+", ignorable=True, default=16)


class ListConfigResourcesRequest(
    Request[ListConfigResourcesResponse],
    api_key=74,
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    resource_types: list[int] = field(array(int8), "1+", default=FRESH)
