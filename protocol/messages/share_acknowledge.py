"""ShareAcknowledge (API key 79), versions 1-2."""

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
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class ShareAcknowledgeResponse(Response, api_key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(int32, "2+", ignorable=True, default=0)
    responses: list[ShareAcknowledgeTopicResponse] = field(
        array("ShareAcknowledgeTopicResponse"), "0+", default=FRESH
    )
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "0+", default=FRESH)

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ShareAcknowledgeResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "0+", default=FRESH
        )

    class LeaderIdAndEpoch(Struct):
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "0+", default=0)
        host: str = field(string, "0+", default="")
        port: int = field(int32, "0+", default=0)
        rack: str | None = field(string, "0+", nullable="0+", default=None)


class ShareAcknowledgeRequest(
    Request[ShareAcknowledgeResponse],
    api_key=79,
    versions="1-2",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+", default="")
    share_session_epoch: int = field(int32, "0+", default=0)
    is_renew_ack: bool = field(boolean, "2+", default=False)
    topics: list[AcknowledgeTopic] = field(array("AcknowledgeTopic"), "0+", default=FRESH)

    class AcknowledgeTopic(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = field(
            array("AcknowledgePartition"), "0+", default=FRESH
        )

    class AcknowledgePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = field(
            array("AcknowledgementBatch"), "0+", default=FRESH
        )

    class AcknowledgementBatch(Struct):
        first_offset: int = field(int64, "0+", default=0)
        last_offset: int = field(int64, "0+", default=0)
        acknowledge_types: list[int] = field(array(int8), "0+", default=FRESH)
