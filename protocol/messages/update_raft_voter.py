"""UpdateRaftVoter (API key 82), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    string,
    struct,
    uint16,
    uuid,
)


class UpdateRaftVoterResponse(Response, api_key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    current_leader: CurrentLeader = field(struct("CurrentLeader"), "0+", tag=0, default=FRESH)

    class CurrentLeader(Struct):
        leader_id: int = field(int32, "0+", default=-1)
        leader_epoch: int = field(int32, "0+", default=-1)
        host: str = field(string, "0+", default="")
        port: int = field(int32, "0+", default=0)


class UpdateRaftVoterRequest(
    Request[UpdateRaftVoterResponse],
    api_key=82,
    versions="0",
    flexible="0+",
    listeners=("controller",),
):
    cluster_id: str | None = field(string, "0+", nullable="0+", default="")
    current_leader_epoch: int = field(int32, "0+", default=0)
    voter_id: int = field(int32, "0+", default=0)
    voter_directory_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array("Listener"), "0+", default=FRESH)
    kraft_version_feature: KRaftVersionFeature = field(
        struct("KRaftVersionFeature"), "0+", default=FRESH
    )

    class Listener(Struct):
        name: str = field(string, "0+", default="")
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)

    class KRaftVersionFeature(Struct):
        min_supported_version: int = field(int16, "0+", default=0)
        max_supported_version: int = field(int16, "0+", default=0)
