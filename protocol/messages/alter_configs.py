"""AlterConfigs (API key 33), versions 0-2."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    string,
)


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field(
        array("AlterConfigsResourceResponse"), "0+", default=FRESH
    )

    class AlterConfigsResourceResponse(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")


class AlterConfigsRequest(
    Request[AlterConfigsResponse],
    api_key=33,
    versions="0-2",
    flexible="2+",
    listeners=("broker", "controller"),
):
    resources: list[AlterConfigsResource] = field(
        array("AlterConfigsResource"), "0+", default=FRESH
    )
    validate_only: bool = field(boolean, "0+", default=False)

    class AlterConfigsResource(Struct):
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        configs: list[AlterConfigsRequest.AlterableConfig] = field(
            array("AlterableConfig"), "0+", default=FRESH
        )

    class AlterableConfig(Struct):
        name: str = field(string, "0+", default="")
        value: str | None = field(string, "0+", nullable="0+", default="")
