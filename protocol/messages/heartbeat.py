"""Heartbeat (API key 12), versions 0-4."""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, string


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    error_code: int = field(int16, "0+", default=0)


class HeartbeatRequest(
    Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    generation_id: int = field(int32, "0+", default=0)
    member_id: str = field(string, "0+", default="")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
