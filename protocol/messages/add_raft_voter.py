"""AddRaftVoter (API key 80), versions 0-1."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    string,
    uint16,
    uuid,
)


class AddRaftVoterResponse(Response, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", ignorable=True, default="")


class AddRaftVoterRequest(
    Request[AddRaftVoterResponse],
    api_key=80,
    versions="0-1",
    flexible="0+",
    listeners=("controller", "broker"),
):
    cluster_id: str | None = field(string, "0+", nullable="0+", default="")
    timeout_ms: int = field(int32, "0+", default=0)
    voter_id: int = field(int32, "0+", default=0)
    voter_directory_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array("Listener"), "0+", default=FRESH)
    ack_when_committed: bool = field(boolean, "1+", default=True)

    class Listener(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)
