"""DescribeAcls (API key 29), versions 1-3."""

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


class DescribeAclsResponse(Response, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    resources: list[DescribeAclsResource] = field(
        array("DescribeAclsResource"), "0+", default=FRESH
    )

    class DescribeAclsResource(Struct):
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        pattern_type: int = field(int8, "1+", default=3)
        acls: list[DescribeAclsResponse.AclDescription] = field(
            array("AclDescription"), "0+", default=FRESH
        )

    class AclDescription(Struct):
        principal: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        operation: int = field(int8, "0+", default=0)
        permission_type: int = field(int8, "0+", default=0)


class DescribeAclsRequest(
    Request[DescribeAclsResponse],
    api_key=29,
    versions="1-3",
    flexible="2+",
    listeners=("broker", "controller"),
):
    resource_type_filter: int = field(int8, "0+", default=0)
    resource_name_filter: str | None = field(string, "0+", nullable="0+", default="")
    pattern_type_filter: int = field(int8, "1+", default=3)
    principal_filter: str | None = field(string, "0+", nullable="0+", default="")
    host_filter: str | None = field(string, "0+", nullable="0+", default="")
    operation: int = field(int8, "0+", default=0)
    permission_type: int = field(int8, "0+", default=0)
