"""OffsetDelete (API key 47), version 0."""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    error_code: int = field(int16, "0+", default=0)
    throttle_time_ms: int = field(int32, "0+", ignorable=True, default=0)
    topics: list[OffsetDeleteResponseTopic] = field(
        array("OffsetDeleteResponseTopic"), "0+", default=FRESH
    )

    class OffsetDeleteResponseTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = field(
            array("OffsetDeleteResponsePartition"), "0+", default=FRESH
        )

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class OffsetDeleteRequest(
    Request[OffsetDeleteResponse], api_key=47, versions="0", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    topics: list[OffsetDeleteRequestTopic] = field(
        array("OffsetDeleteRequestTopic"), "0+", default=FRESH
    )

    class OffsetDeleteRequestTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = field(
            array("OffsetDeleteRequestPartition"), "0+", default=FRESH
        )

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
