"""ListTransactions (API key 66), versions 0-2."""

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


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    unknown_state_filters: list[str] = field(array(string), "0+", default=FRESH)
    transaction_states: list[TransactionState] = field(
        array("TransactionState"), "0+", default=FRESH
    )

    class TransactionState(Struct):
        transactional_id: str = field(string, "0+", default="")
        producer_id: int = field(int64, "0+", default=0)
        transaction_state: str = field(string, "0+", default="")


class ListTransactionsRequest(
    Request[ListTransactionsResponse],
    api_key=66,
    versions="0-2",
    flexible="0+",
    listeners=("broker",),
):
    state_filters: list[str] = field(array(string), "0+", default=FRESH)
    producer_id_filters: list[int] = field(array(int64), "0+", default=FRESH)
    duration_filter: int = field(int64, "1+", default=-1)
    transactional_id_pattern: str | None = field(string, "2+", nullable="2+", default=None)
