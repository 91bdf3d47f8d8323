"""AlterShareGroupOffsets (API key 91), version 0."""

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
    int64,
    string,
    uuid,
)


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        array("AlterShareGroupOffsetsResponseTopic"), "0+", default=FRESH
    )

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field(string, "0+", default="")
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = (
            field(array("AlterShareGroupOffsetsResponsePartition"), "0+", default=FRESH)
        )

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class AlterShareGroupOffsetsRequest(
    Request[AlterShareGroupOffsetsResponse],
    api_key=91,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        array("AlterShareGroupOffsetsRequestTopic"), "0+", default=FRESH
    )

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = (
            field(array("AlterShareGroupOffsetsRequestPartition"), "0+", default=FRESH)
        )

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        start_offset: int = field(int64, "0+", default=0)
