"""TxnOffsetCommit (API key 28), versions 0-6."""

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


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(
        array("TxnOffsetCommitResponseTopic"), "0+", default=FRESH
    )

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = field(string, "0-5", ignorable=True, default="")
        topic_id: bytes = field(uuid, "6+", ignorable=True, default=ZERO_UUID)
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = field(
            array("TxnOffsetCommitResponsePartition"), "0+", default=FRESH
        )

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class TxnOffsetCommitRequest(
    Request[TxnOffsetCommitResponse],
    api_key=28,
    versions="0-6",
    flexible="3+",
    listeners=("broker",),
):
    transactional_id: str = field(string, "0+", default="")
    group_id: str = field(string, "0+", default="")
    producer_id: int = field(int64, "0+", default=0)
    producer_epoch: int = field(int16, "0+", default=0)
    generation_id_or_member_epoch: int = field(int32, "3+", default=-1)
    member_id: str = field(string, "3+", default="")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(
        array("TxnOffsetCommitRequestTopic"), "0+", default=FRESH
    )

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = field(string, "0-5", ignorable=True, default="")
        topic_id: bytes = field(uuid, "6+", ignorable=True, default=ZERO_UUID)
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = field(
            array("TxnOffsetCommitRequestPartition"), "0+", default=FRESH
        )

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        committed_offset: int = field(int64, "0+", default=0)
        committed_leader_epoch: int = field(int32, "2+", ignorable=True, default=-1)
        committed_metadata: str | None = field(string, "0+", nullable="0+", default="")
