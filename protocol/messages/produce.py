"""Produce (API key 0), versions 3-13."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Records,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ProduceResponse(Response, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(
        array("TopicProduceResponse"), "0+", default=FRESH
    )
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "10+", tag=0, default=FRESH)

    class TopicProduceResponse(Struct):
        name: str = field(string, "0-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = field(
            array("PartitionProduceResponse"), "0+", default=FRESH
        )

    class PartitionProduceResponse(Struct):
        index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        base_offset: int = field(int64, "0+", default=0)
        log_append_time_ms: int = field(int64, "2+", ignorable=True, default=-1)
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            array("BatchIndexAndErrorMessage"), "8+", ignorable=True, default=FRESH
        )
        error_message: str | None = field(string, "8+", nullable="8+", ignorable=True, default=None)
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "10+", tag=0, default=FRESH
        )

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int = field(int32, "8+", default=0)
        batch_index_error_message: str | None = field(string, "8+", nullable="8+", default=None)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = field(int32, "10+", default=-1)
        leader_epoch: int = field(int32, "10+", default=-1)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "10+", default=0)
        host: str = field(string, "10+", default="")
        port: int = field(int32, "10+", default=0)
        rack: str | None = field(string, "10+", nullable="10+", default=None)


class ProduceRequest(
    Request[ProduceResponse], api_key=0, versions="3-13", flexible="9+", listeners=("broker",)
):
    transactional_id: str | None = field(string, "3+", nullable="3+", default=None)
    acks: int = field(int16, "0+", default=0)
    timeout_ms: int = field(int32, "0+", default=0)
    topic_data: list[TopicProduceData] = field(array("TopicProduceData"), "0+", default=FRESH)

    class TopicProduceData(Struct):
        name: str = field(string, "0-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partition_data: list[ProduceRequest.PartitionProduceData] = field(
            array("PartitionProduceData"), "0+", default=FRESH
        )

    class PartitionProduceData(Struct):
        index: int = field(int32, "0+", default=0)
        records: Records | None = field(records, "0+", nullable="0+", default=b"")
