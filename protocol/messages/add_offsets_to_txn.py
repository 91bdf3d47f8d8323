"""AddOffsetsToTxn (API key 25), versions 0-4."""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, int64, string


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)


class AddOffsetsToTxnRequest(
    Request[AddOffsetsToTxnResponse],
    api_key=25,
    versions="0-4",
    flexible="3+",
    listeners=("broker",),
):
    transactional_id: str = field(string, "0+", default="")
    producer_id: int = field(int64, "0+", default=0)
    producer_epoch: int = field(int16, "0+", default=0)
    group_id: str = field(string, "0+", default="")
