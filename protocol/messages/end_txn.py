"""EndTxn (API key 26), versions 0-5."""

from __future__ import annotations

from protocol.schema import Request, Response, boolean, field, int16, int32, int64, string


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    producer_id: int = field(int64, "5+", ignorable=True, default=-1)
    producer_epoch: int = field(int16, "5+", ignorable=True, default=-1)


class EndTxnRequest(
    Request[EndTxnResponse], api_key=26, versions="0-5", flexible="3+", listeners=("broker",)
):
    transactional_id: str = field(string, "0+", default="")
    producer_id: int = field(int64, "0+", default=0)
    producer_epoch: int = field(int16, "0+", default=0)
    committed: bool = field(boolean, "0+", default=False)
