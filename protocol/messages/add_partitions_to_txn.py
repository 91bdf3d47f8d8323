"""AddPartitionsToTxn (API key 24), versions 0-5."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    int64,
    string,
)


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "4+", ignorable=True, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array("AddPartitionsToTxnResult"), "4+", default=FRESH
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array("AddPartitionsToTxnTopicResult"), "0-3", default=FRESH
    )

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = field(string, "0+", default="")
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = (
            field(array("AddPartitionsToTxnPartitionResult"), "0+", default=FRESH)
        )

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int = field(int32, "0+", default=0)
        partition_error_code: int = field(int16, "0+", default=0)

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = field(string, "4+", default="")
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field(
            array("AddPartitionsToTxnTopicResult"), "4+", default=FRESH
        )


class AddPartitionsToTxnRequest(
    Request[AddPartitionsToTxnResponse],
    api_key=24,
    versions="0-5",
    flexible="3+",
    listeners=("broker",),
):
    transactions: list[AddPartitionsToTxnTransaction] = field(
        array("AddPartitionsToTxnTransaction"), "4+", default=FRESH
    )
    v3_and_below_transactional_id: str = field(string, "0-3", default="")
    v3_and_below_producer_id: int = field(int64, "0-3", default=0)
    v3_and_below_producer_epoch: int = field(int16, "0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array("AddPartitionsToTxnTopic"), "0-3", default=FRESH
    )

    class AddPartitionsToTxnTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = field(string, "4+", default="")
        producer_id: int = field(int64, "4+", default=0)
        producer_epoch: int = field(int16, "4+", default=0)
        verify_only: bool = field(boolean, "4+", default=False)
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(
            array("AddPartitionsToTxnTopic"), "4+", default=FRESH
        )
