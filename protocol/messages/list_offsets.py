"""ListOffsets (API key 2), versions 1-11."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
)


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse] = field(
        array("ListOffsetsTopicResponse"), "0+", default=FRESH
    )

    class ListOffsetsTopicResponse(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = field(
            array("ListOffsetsPartitionResponse"), "0+", default=FRESH
        )

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        timestamp: int = field(int64, "1+", default=-1)
        offset: int = field(int64, "1+", default=-1)
        leader_epoch: int = field(int32, "4+", default=-1)


class ListOffsetsRequest(
    Request[ListOffsetsResponse], api_key=2, versions="1-11", flexible="6+", listeners=("broker",)
):
    replica_id: int = field(int32, "0+", default=0)
    isolation_level: int = field(int8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(array("ListOffsetsTopic"), "0+", default=FRESH)
    timeout_ms: int = field(int32, "10+", ignorable=True, default=0)

    class ListOffsetsTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = field(
            array("ListOffsetsPartition"), "0+", default=FRESH
        )

    class ListOffsetsPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        current_leader_epoch: int = field(int32, "4+", ignorable=True, default=-1)
        timestamp: int = field(int64, "0+", default=0)
