"""JoinGroup (API key 11), versions 0-9."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    bytes_,
    field,
    int16,
    int32,
    string,
)


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    error_code: int = field(int16, "0+", default=0)
    generation_id: int = field(int32, "0+", default=-1)
    protocol_type: str | None = field(string, "7+", nullable="7+", ignorable=True, default=None)
    protocol_name: str | None = field(string, "0+", nullable="7+", default="")
    leader: str = field(string, "0+", default="")
    skip_assignment: bool = field(boolean, "9+", default=False)
    member_id: str = field(string, "0+", default="")
    members: list[JoinGroupResponseMember] = field(
        array("JoinGroupResponseMember"), "0+", default=FRESH
    )

    class JoinGroupResponseMember(Struct):
        member_id: str = field(string, "0+", default="")
        group_instance_id: str | None = field(
            string, "5+", nullable="5+", ignorable=True, default=None
        )
        metadata: bytes = field(bytes_, "0+", default=b"")


class JoinGroupRequest(
    Request[JoinGroupResponse], api_key=11, versions="0-9", flexible="6+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    session_timeout_ms: int = field(int32, "0+", default=0)
    rebalance_timeout_ms: int = field(int32, "1+", ignorable=True, default=-1)
    member_id: str = field(string, "0+", default="")
    group_instance_id: str | None = field(string, "5+", nullable="5+", default=None)
    protocol_type: str = field(string, "0+", default="")
    protocols: list[JoinGroupRequestProtocol] = field(
        array("JoinGroupRequestProtocol"), "0+", default=FRESH
    )
    reason: str | None = field(string, "8+", nullable="8+", ignorable=True, default=None)

    class JoinGroupRequestProtocol(Struct):
        name: str = field(string, "0+", default="")
        metadata: bytes = field(bytes_, "0+", default=b"")
