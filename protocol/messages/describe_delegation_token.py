"""DescribeDelegationToken (API key 41), versions 1-3."""

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


class DescribeDelegationTokenResponse(Response, api_key=41, versions="1-3", flexible="2+"):
    error_code: int = field(int16, "0+", default=0)
    tokens: list[DescribedDelegationToken] = field(
        array("DescribedDelegationToken"), "0+", default=FRESH
    )
    throttle_time_ms: int = field(int32, "0+", default=0)

    class DescribedDelegationToken(Struct):
        principal_type: str = field(string, "0+", default="")
        principal_name: str = field(string, "0+", default="")
        token_requester_principal_type: str = field(string, "3+", default="")
        token_requester_principal_name: str = field(string, "3+", default="")
        issue_timestamp: int = field(int64, "0+", default=0)
        expiry_timestamp: int = field(int64, "0+", default=0)
        max_timestamp: int = field(int64, "0+", default=0)
        token_id: str = field(string, "0+", default="")
        hmac: bytes = field(bytes_, "0+", default=b"")
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = field(
            array("DescribedDelegationTokenRenewer"), "0+", default=FRESH
        )

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = field(string, "0+", default="")
        principal_name: str = field(string, "0+", default="")


class DescribeDelegationTokenRequest(
    Request[DescribeDelegationTokenResponse],
    api_key=41,
    versions="1-3",
    flexible="2+",
    listeners=("broker", "controller"),
):
    owners: list[DescribeDelegationTokenOwner] | None = field(
        array("DescribeDelegationTokenOwner"), "0+", nullable="0+", default=FRESH
    )

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = field(string, "0+", default="")
        principal_name: str = field(string, "0+", default="")
