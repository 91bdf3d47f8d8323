"""ShareGroupHeartbeat (API key 76), version 1."""

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
    uuid,
)


class ShareGroupHeartbeatResponse(Response, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_epoch: int = field(int32, "0+", default=0)
    heartbeat_interval_ms: int = field(int32, "0+", default=0)
    assignment: Assignment | None = field(struct("Assignment"), "0+", nullable="0+", default=None)

    class TopicPartitions(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = field(
            array("TopicPartitions"), "0+", default=FRESH
        )


class ShareGroupHeartbeatRequest(
    Request[ShareGroupHeartbeatResponse],
    api_key=76,
    versions="1",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    member_id: str = field(string, "0+", default="")
    member_epoch: int = field(int32, "0+", default=0)
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(
        array(string), "0+", nullable="0+", default=None
    )
