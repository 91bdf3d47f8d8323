"""DescribeTransactions (API key 65), version 0."""

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


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    transaction_states: list[TransactionState] = field(
        array("TransactionState"), "0+", default=FRESH
    )

    class TransactionState(Struct):
        error_code: int = field(int16, "0+", default=0)
        transactional_id: str = field(string, "0+", default="")
        transaction_state: str = field(string, "0+", default="")
        transaction_timeout_ms: int = field(int32, "0+", default=0)
        transaction_start_time_ms: int = field(int64, "0+", default=0)
        producer_id: int = field(int64, "0+", default=0)
        producer_epoch: int = field(int16, "0+", default=0)
        topics: list[DescribeTransactionsResponse.TopicData] = field(
            array("TopicData"), "0+", default=FRESH
        )

    class TopicData(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)


class DescribeTransactionsRequest(
    Request[DescribeTransactionsResponse],
    api_key=65,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    transactional_ids: list[str] = field(array(string), "0+", default=FRESH)
