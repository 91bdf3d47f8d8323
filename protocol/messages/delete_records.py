"""DeleteRecords (API key 21), versions 0-2."""

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


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    topics: list[DeleteRecordsTopicResult] = field(
        array("DeleteRecordsTopicResult"), "0+", default=FRESH
    )

    class DeleteRecordsTopicResult(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = field(
            array("DeleteRecordsPartitionResult"), "0+", default=FRESH
        )

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int = field(int32, "0+", default=0)
        low_watermark: int = field(int64, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class DeleteRecordsRequest(
    Request[DeleteRecordsResponse], api_key=21, versions="0-2", flexible="2+", listeners=("broker",)
):
    topics: list[DeleteRecordsTopic] = field(array("DeleteRecordsTopic"), "0+", default=FRESH)
    timeout_ms: int = field(int32, "0+", default=0)

    class DeleteRecordsTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = field(
            array("DeleteRecordsPartition"), "0+", default=FRESH
        )

    class DeleteRecordsPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        offset: int = field(int64, "0+", default=0)
