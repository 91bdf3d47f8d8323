"""DescribeShareGroupOffsets (API key 90), versions 0-1."""

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


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        array("DescribeShareGroupOffsetsResponseGroup"), "0+", default=FRESH
    )

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = field(string, "0+", default="")
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = (
            field(array("DescribeShareGroupOffsetsResponseTopic"), "0+", default=FRESH)
        )
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field(string, "0+", default="")
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[
            DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
        ] = field(array("DescribeShareGroupOffsetsResponsePartition"), "0+", default=FRESH)

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        start_offset: int = field(int64, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        lag: int = field(int64, "1+", ignorable=True, default=-1)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsRequest(
    Request[DescribeShareGroupOffsetsResponse],
    api_key=90,
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        array("DescribeShareGroupOffsetsRequestGroup"), "0+", default=FRESH
    )

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = field(string, "0+", default="")
        topics: (
            list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        ) = field(
            array("DescribeShareGroupOffsetsRequestTopic"), "0+", nullable="0+", default=FRESH
        )

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
