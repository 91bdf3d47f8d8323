"""RemoveRaftVoter (API key 81), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import Request, Response, field, int16, int32, string, uuid


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", ignorable=True, default="")


class RemoveRaftVoterRequest(
    Request[RemoveRaftVoterResponse],
    api_key=81,
    versions="0",
    flexible="0+",
    listeners=("controller", "broker"),
):
    cluster_id: str | None = field(string, "0+", nullable="0+", default="")
    voter_id: int = field(int32, "0+", default=0)
    voter_directory_id: bytes = field(uuid, "0+", default=ZERO_UUID)
