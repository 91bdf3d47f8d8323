"""DescribeConfigs (API key 32), versions 1-4."""

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


class DescribeConfigsResponse(Response, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[DescribeConfigsResult] = field(
        array("DescribeConfigsResult"), "0+", default=FRESH
    )

    class DescribeConfigsResult(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = field(
            array("DescribeConfigsResourceResult"), "0+", default=FRESH
        )

    class DescribeConfigsResourceResult(Struct):
        name: str = field(string, "0+", default="")
        value: str | None = field(string, "0+", nullable="0+", default="")
        read_only: bool = field(boolean, "0+", default=False)
        config_source: int = field(int8, "1+", ignorable=True, default=-1)
        is_sensitive: bool = field(boolean, "0+", default=False)
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field(
            array("DescribeConfigsSynonym"), "1+", ignorable=True, default=FRESH
        )
        config_type: int = field(int8, "3+", ignorable=True, default=0)
        documentation: str | None = field(string, "3+", nullable="0+", ignorable=True, default="")

    class DescribeConfigsSynonym(Struct):
        name: str = field(string, "1+", default="")
        value: str | None = field(string, "1+", nullable="0+", default="")
        source: int = field(int8, "1+", default=0)


class DescribeConfigsRequest(
    Request[DescribeConfigsResponse],
    api_key=32,
    versions="1-4",
    flexible="4+",
    listeners=("broker", "controller"),
):
    resources: list[DescribeConfigsResource] = field(
        array("DescribeConfigsResource"), "0+", default=FRESH
    )
    include_synonyms: bool = field(boolean, "1+", default=False)
    include_documentation: bool = field(boolean, "3+", default=False)

    class DescribeConfigsResource(Struct):
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        configuration_keys: list[str] | None = field(
            array(string), "0+", nullable="0+", default=FRESH
        )
