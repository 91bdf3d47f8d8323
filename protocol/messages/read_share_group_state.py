"""ReadShareGroupState (API key 84), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
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
    uuid,
)


class ReadShareGroupStateResponse(Response, api_key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field(array("ReadStateResult"), "0+", default=FRESH)

    class ReadStateResult(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = field(
            array("PartitionResult"), "0+", default=FRESH
        )

    class PartitionResult(Struct):
        partition: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        state_epoch: int = field(int32, "0+", default=0)
        start_offset: int = field(int64, "0+", default=0)
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = field(
            array("StateBatch"), "0+", default=FRESH
        )

    class StateBatch(Struct):
        first_offset: int = field(int64, "0+", default=0)
        last_offset: int = field(int64, "0+", default=0)
        delivery_state: int = field(int8, "0+", default=0)
        delivery_count: int = field(int16, "0+", default=0)


class ReadShareGroupStateRequest(
    Request[ReadShareGroupStateResponse],
    api_key=84,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[ReadStateData] = field(array("ReadStateData"), "0+", default=FRESH)

    class ReadStateData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ReadShareGroupStateRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
