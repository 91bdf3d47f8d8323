"""DeleteAcls (API key 31), versions 1-3."""

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


class DeleteAclsResponse(Response, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = field(
        array("DeleteAclsFilterResult"), "0+", default=FRESH
    )

    class DeleteAclsFilterResult(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = field(
            array("DeleteAclsMatchingAcl"), "0+", default=FRESH
        )

    class DeleteAclsMatchingAcl(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        resource_type: int = field(int8, "0+", default=0)
        resource_name: str = field(string, "0+", default="")
        pattern_type: int = field(int8, "1+", default=3)
        principal: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        operation: int = field(int8, "0+", default=0)
        permission_type: int = field(int8, "0+", default=0)


class DeleteAclsRequest(
    Request[DeleteAclsResponse],
    api_key=31,
    versions="1-3",
    flexible="2+",
    listeners=("broker", "controller"),
):
    filters: list[DeleteAclsFilter] = field(array("DeleteAclsFilter"), "0+", default=FRESH)

    class DeleteAclsFilter(Struct):
        resource_type_filter: int = field(int8, "0+", default=0)
        resource_name_filter: str | None = field(string, "0+", nullable="0+", default="")
        pattern_type_filter: int = field(int8, "1+", default=3)
        principal_filter: str | None = field(string, "0+", nullable="0+", default="")
        host_filter: str | None = field(string, "0+", nullable="0+", default="")
        operation: int = field(int8, "0+", default=0)
        permission_type: int = field(int8, "0+", default=0)
