"""AlterUserScramCredentials (API key 51), version 0."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    bytes_,
    field,
    int8,
    int16,
    int32,
    string,
)


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[AlterUserScramCredentialsResult] = field(
        array("AlterUserScramCredentialsResult"), "0+", default=FRESH
    )

    class AlterUserScramCredentialsResult(Struct):
        user: str = field(string, "0+", default="")
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")


class AlterUserScramCredentialsRequest(
    Request[AlterUserScramCredentialsResponse],
    api_key=51,
    versions="0",
    flexible="0+",
    listeners=("broker", "controller"),
):
    deletions: list[ScramCredentialDeletion] = field(
        array("ScramCredentialDeletion"), "0+", default=FRESH
    )
    upsertions: list[ScramCredentialUpsertion] = field(
        array("ScramCredentialUpsertion"), "0+", default=FRESH
    )

    class ScramCredentialDeletion(Struct):
        name: str = field(string, "0+", default="")
        mechanism: int = field(int8, "0+", default=0)

    class ScramCredentialUpsertion(Struct):
        name: str = field(string, "0+", default="")
        mechanism: int = field(int8, "0+", default=0)
        iterations: int = field(int32, "0+", default=0)
        salt: bytes = field(bytes_, "0+", default=b"")
        salted_password: bytes = field(bytes_, "0+", default=b"")
