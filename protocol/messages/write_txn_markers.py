"""WriteTxnMarkers (API key 27), versions 1-2."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
)


class WriteTxnMarkersResponse(Response, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field(
        array("WritableTxnMarkerResult"), "0+", default=FRESH
    )

    class WritableTxnMarkerResult(Struct):
        producer_id: int = field(int64, "0+", default=0)
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = field(
            array("WritableTxnMarkerTopicResult"), "0+", default=FRESH
        )

    class WritableTxnMarkerTopicResult(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = field(
            array("WritableTxnMarkerPartitionResult"), "0+", default=FRESH
        )

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class WriteTxnMarkersRequest(
    Request[WriteTxnMarkersResponse],
    api_key=27,
    versions="1-2",
    flexible="1+",
    listeners=("broker",),
):
    markers: list[WritableTxnMarker] = field(array("WritableTxnMarker"), "0+", default=FRESH)

    class WritableTxnMarker(Struct):
        producer_id: int = field(int64, "0+", default=0)
        producer_epoch: int = field(int16, "0+", default=0)
        transaction_result: bool = field(boolean, "0+", default=False)
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = field(
            array("WritableTxnMarkerTopic"), "0+", default=FRESH
        )
        coordinator_epoch: int = field(int32, "0+", default=0)
        transaction_version: int = field(int8, "2+", ignorable=True, default=0)

    class WritableTxnMarkerTopic(Struct):
        name: str = field(string, "0+", default="")
        partition_indexes: list[int] = field(array(int32), "0+", default=FRESH)
