"""SyncGroup (API key 14), versions 0-5."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    bytes_,
    field,
    int16,
    int32,
    string,
)


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    error_code: int = field(int16, "0+", default=0)
    protocol_type: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    protocol_name: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    assignment: bytes = field(bytes_, "0+", default=b"")


class SyncGroupRequest(
    Request[SyncGroupResponse], api_key=14, versions="0-5", flexible="4+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    generation_id: int = field(int32, "0+", default=0)
    member_id: str = field(string, "0+", default="")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    protocol_name: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    assignments: list[SyncGroupRequestAssignment] = field(
        array("SyncGroupRequestAssignment"), "0+", default=FRESH
    )

    class SyncGroupRequestAssignment(Struct):
        member_id: str = field(string, "0+", default="")
        assignment: bytes = field(bytes_, "0+", default=b"")
