"""CreateDelegationToken (API key 38), versions 1-3."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    bytes_,
    field,
    int16,
    int32,
    int64,
    string,
)


class CreateDelegationTokenResponse(Response, api_key=38, versions="1-3", flexible="2+"):
    error_code: int = field(int16, "0+", default=0)
    principal_type: str = field(string, "0+", default="")
    principal_name: str = field(string, "0+", default="")
    token_requester_principal_type: str = field(string, "3+", default="")
    token_requester_principal_name: str = field(string, "3+", default="")
    issue_timestamp_ms: int = field(int64, "0+", default=0)
    expiry_timestamp_ms: int = field(int64, "0+", default=0)
    max_timestamp_ms: int = field(int64, "0+", default=0)
    token_id: str = field(string, "0+", default="")
    hmac: bytes = field(bytes_, "0+", default=b"")
    throttle_time_ms: int = field(int32, "0+", default=0)


class CreateDelegationTokenRequest(
    Request[CreateDelegationTokenResponse],
    api_key=38,
    versions="1-3",
    flexible="2+",
    listeners=("broker", "controller"),
):
    owner_principal_type: str | None = field(string, "3+", nullable="3+", default="")
    owner_principal_name: str | None = field(string, "3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = field(array("CreatableRenewers"), "0+", default=FRESH)
    max_lifetime_ms: int = field(int64, "0+", default=0)

    class CreatableRenewers(Struct):
        principal_type: str = field(string, "0+", default="")
        principal_name: str = field(string, "0+", default="")
