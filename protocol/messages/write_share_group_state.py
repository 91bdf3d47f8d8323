"""WriteShareGroupState (API key 85), versions 0-1."""

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


class WriteShareGroupStateResponse(Response, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field(array("WriteStateResult"), "0+", default=FRESH)

    class WriteStateResult(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = field(
            array("PartitionResult"), "0+", default=FRESH
        )

    class PartitionResult(Struct):
        partition: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class WriteShareGroupStateRequest(
    Request[WriteShareGroupStateResponse],
    api_key=85,
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[WriteStateData] = field(array("WriteStateData"), "0+", default=FRESH)

    class WriteStateData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[WriteShareGroupStateRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition: int = field(int32, "0+", default=0)
        state_epoch: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        start_offset: int = field(int64, "0+", default=0)
        delivery_complete_count: int = field(int32, "1+", ignorable=True, default=-1)
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = field(
            array("StateBatch"), "0+", default=FRESH
        )

    class StateBatch(Struct):
        first_offset: int = field(int64, "0+", default=0)
        last_offset: int = field(int64, "0+", default=0)
        delivery_state: int = field(int8, "0+", default=0)
        delivery_count: int = field(int16, "0+", default=0)
