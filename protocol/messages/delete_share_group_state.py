"""DeleteShareGroupState (API key 86), version 0."""

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
    string,
    uuid,
)


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field(array("DeleteStateResult"), "0+", default=FRESH)

    class DeleteStateResult(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = field(
            array("PartitionResult"), "0+", default=FRESH
        )

    class PartitionResult(Struct):
        partition: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class DeleteShareGroupStateRequest(
    Request[DeleteShareGroupStateResponse],
    api_key=86,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[DeleteStateData] = field(array("DeleteStateData"), "0+", default=FRESH)

    class DeleteStateData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition: int = field(int32, "0+", default=0)
