"""InitProducerId (API key 22), versions 0-6; version 6 is unstable."""

from __future__ import annotations

from protocol.schema import Request, Response, boolean, field, int16, int32, int64, string


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True, default=0)
    error_code: int = field(int16, "0+", default=0)
    producer_id: int = field(int64, "0+", default=-1)
    producer_epoch: int = field(int16, "0+", default=0)
    ongoing_txn_producer_id: int = field(int64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = field(int16, "6+", default=-1)


class InitProducerIdRequest(
    Request[InitProducerIdResponse],
    api_key=22,
    versions="0-6",
    flexible="2+",
    listeners=("broker",),
    unstable="6",
):
    transactional_id: str | None = field(string, "0+", nullable="0+", default="")
    transaction_timeout_ms: int = field(int32, "0+", default=0)
    producer_id: int = field(int64, "3+", default=-1)
    producer_epoch: int = field(int16, "3+", default=-1)
    enable2_pc: bool = field(boolean, "6+", default=False)
    keep_prepared_txn: bool = field(boolean, "6+", default=False)
