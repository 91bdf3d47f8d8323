"""ReadShareGroupStateSummary (API key 87), versions 0-1."""

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


class ReadShareGroupStateSummaryResponse(Response, api_key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field(
        array("ReadStateSummaryResult"), "0+", default=FRESH
    )

    class ReadStateSummaryResult(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = field(
            array("PartitionResult"), "0+", default=FRESH
        )

    class PartitionResult(Struct):
        partition: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        state_epoch: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        start_offset: int = field(int64, "0+", default=0)
        delivery_complete_count: int = field(int32, "1+", ignorable=True, default=-1)


class ReadShareGroupStateSummaryRequest(
    Request[ReadShareGroupStateSummaryResponse],
    api_key=87,
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[ReadStateSummaryData] = field(array("ReadStateSummaryData"), "0+", default=FRESH)

    class ReadStateSummaryData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
