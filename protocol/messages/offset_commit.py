"""OffsetCommit (API key 8), versions 2-10."""

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


class OffsetCommitResponse(Response, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True, default=0)
    topics: list[OffsetCommitResponseTopic] = field(
        array("OffsetCommitResponseTopic"), "0+", default=FRESH
    )

    class OffsetCommitResponseTopic(Struct):
        name: str = field(string, "0-9", ignorable=True, default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = field(
            array("OffsetCommitResponsePartition"), "0+", default=FRESH
        )

    class OffsetCommitResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class OffsetCommitRequest(
    Request[OffsetCommitResponse], api_key=8, versions="2-10", flexible="8+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    generation_id_or_member_epoch: int = field(int32, "1+", ignorable=True, default=-1)
    member_id: str = field(string, "1+", ignorable=True, default="")
    group_instance_id: str | None = field(string, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(int64, "2-4", ignorable=True, default=-1)
    topics: list[OffsetCommitRequestTopic] = field(
        array("OffsetCommitRequestTopic"), "0+", default=FRESH
    )

    class OffsetCommitRequestTopic(Struct):
        name: str = field(string, "0-9", ignorable=True, default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = field(
            array("OffsetCommitRequestPartition"), "0+", default=FRESH
        )

    class OffsetCommitRequestPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        committed_offset: int = field(int64, "0+", default=0)
        committed_leader_epoch: int = field(int32, "6+", ignorable=True, default=-1)
        committed_metadata: str | None = field(string, "0+", nullable="0+", default="")
