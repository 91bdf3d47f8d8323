"""InitializeShareGroupState (API key 83), version 0."""

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


class InitializeShareGroupStateResponse(Response, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field(
        array("InitializeStateResult"), "0+", default=FRESH
    )

    class InitializeStateResult(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = field(
            array("PartitionResult"), "0+", default=FRESH
        )

    class PartitionResult(Struct):
        partition: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class InitializeShareGroupStateRequest(
    Request[InitializeShareGroupStateResponse],
    api_key=83,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[InitializeStateData] = field(array("InitializeStateData"), "0+", default=FRESH)

    class InitializeStateData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition: int = field(int32, "0+", default=0)
        state_epoch: int = field(int32, "0+", default=0)
        start_offset: int = field(int64, "0+", default=0)
