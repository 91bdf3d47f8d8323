"""ConsumerGroupHeartbeat (API key 68), versions 0-1."""

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


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
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
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = field(
            array("TopicPartitions"), "0+", default=FRESH
        )


class ConsumerGroupHeartbeatRequest(
    Request[ConsumerGroupHeartbeatResponse],
    api_key=68,
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    member_id: str = field(string, "0+", default="")
    member_epoch: int = field(int32, "0+", default=0)
    instance_id: str | None = field(string, "0+", nullable="0+", default=None)
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = field(
        array(string), "0+", nullable="0+", default=None
    )
    subscribed_topic_regex: str | None = field(string, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(string, "0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = field(
        array("TopicPartitions"), "0+", nullable="0+", default=None
    )

    class TopicPartitions(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
