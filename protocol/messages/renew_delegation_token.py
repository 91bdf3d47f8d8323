"""RenewDelegationToken (API key 39), versions 1-2."""

from __future__ import annotations

from protocol.schema import Request, Response, bytes_, field, int16, int32, int64


class RenewDelegationTokenResponse(Response, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = field(int16, "0+", default=0)
    expiry_timestamp_ms: int = field(int64, "0+", default=0)
    throttle_time_ms: int = field(int32, "0+", default=0)


class RenewDelegationTokenRequest(
    Request[RenewDelegationTokenResponse],
    api_key=39,
    versions="1-2",
    flexible="2+",
    listeners=("broker", "controller"),
):
    hmac: bytes = field(bytes_, "0+", default=b"")
    renew_period_ms: int = field(int64, "0+", default=0)
