"""DescribeUserScramCredentials (API key 50), version 0."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    string,
)


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    results: list[DescribeUserScramCredentialsResult] = field(
        array("DescribeUserScramCredentialsResult"), "0+", default=FRESH
    )

    class DescribeUserScramCredentialsResult(Struct):
        user: str = field(string, "0+", default="")
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = field(
            array("CredentialInfo"), "0+", default=FRESH
        )

    class CredentialInfo(Struct):
        mechanism: int = field(int8, "0+", default=0)
        iterations: int = field(int32, "0+", default=0)


class DescribeUserScramCredentialsRequest(
    Request[DescribeUserScramCredentialsResponse],
    api_key=50,
    versions="0",
    flexible="0+",
    listeners=("broker", "controller"),
):
    users: list[UserName] | None = field(array("UserName"), "0+", nullable="0+", default=FRESH)

    class UserName(Struct):
        name: str = field(string, "0+", default="")
