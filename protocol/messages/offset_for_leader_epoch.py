"""OffsetForLeaderEpoch (API key 23), versions 2-4."""

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


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    topics: list[OffsetForLeaderTopicResult] = field(
        array("OffsetForLeaderTopicResult"), "0+", default=FRESH
    )

    class OffsetForLeaderTopicResult(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = field(
            array("EpochEndOffset"), "0+", default=FRESH
        )

    class EpochEndOffset(Struct):
        error_code: int = field(int16, "0+", default=0)
        partition: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "1+", ignorable=True, default=-1)
        end_offset: int = field(int64, "0+", default=-1)


class OffsetForLeaderEpochRequest(
    Request[OffsetForLeaderEpochResponse],
    api_key=23,
    versions="2-4",
    flexible="4+",
    listeners=("broker",),
):
    replica_id: int = field(int32, "3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = field(array("OffsetForLeaderTopic"), "0+", default=FRESH)

    class OffsetForLeaderTopic(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = field(
            array("OffsetForLeaderPartition"), "0+", default=FRESH
        )

    class OffsetForLeaderPartition(Struct):
        partition: int = field(int32, "0+", default=0)
        current_leader_epoch: int = field(int32, "2+", ignorable=True, default=-1)
        leader_epoch: int = field(int32, "0+", default=0)
