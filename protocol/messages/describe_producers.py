"""DescribeProducers (API key 61), version 0."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    int64,
    string,
)


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    topics: list[TopicResponse] = field(array("TopicResponse"), "0+", default=FRESH)

    class TopicResponse(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[DescribeProducersResponse.PartitionResponse] = field(
            array("PartitionResponse"), "0+", default=FRESH
        )

    class PartitionResponse(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        active_producers: list[DescribeProducersResponse.ProducerState] = field(
            array("ProducerState"), "0+", default=FRESH
        )

    class ProducerState(Struct):
        producer_id: int = field(int64, "0+", default=0)
        producer_epoch: int = field(int32, "0+", default=0)
        last_sequence: int = field(int32, "0+", default=-1)
        last_timestamp: int = field(int64, "0+", default=-1)
        coordinator_epoch: int = field(int32, "0+", default=0)
        current_txn_start_offset: int = field(int64, "0+", default=-1)


class DescribeProducersRequest(
    Request[DescribeProducersResponse],
    api_key=61,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    topics: list[TopicRequest] = field(array("TopicRequest"), "0+", default=FRESH)

    class TopicRequest(Struct):
        name: str = field(string, "0+", default="")
        partition_indexes: list[int] = field(array(int32), "0+", default=FRESH)
