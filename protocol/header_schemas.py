"""RequestHeader and ResponseHeader, versions 0-1."""

from __future__ import annotations

from protocol.schema import Message, field, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: int = field(int16, "0+", default=0)
    request_api_version: int = field(int16, "0+", default=0)
    correlation_id: int = field(int32, "0+", default=0)
    client_id: str | None = field(string, "1+", nullable="1+", flexible="none", default="")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: int = field(int32, "0+", default=0)
