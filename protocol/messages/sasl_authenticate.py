"""SaslAuthenticate (API key 36), versions 0-2."""

from __future__ import annotations

from protocol.schema import Request, Response, bytes_, field, int16, int64, string


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    auth_bytes: bytes = field(bytes_, "0+", default=b"")
    session_lifetime_ms: int = field(int64, "1+", ignorable=True, default=0)


class SaslAuthenticateRequest(
    Request[SaslAuthenticateResponse],
    api_key=36,
    versions="0-2",
    flexible="2+",
    listeners=("broker", "controller"),
):
    auth_bytes: bytes = field(bytes_, "0+", default=b"")
