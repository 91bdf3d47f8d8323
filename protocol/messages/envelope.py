"""Envelope (API key 58), version 0."""

from __future__ import annotations

from protocol.schema import Request, Response, bytes_, field, int16


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    error_code: int = field(int16, "0+", default=0)


class EnvelopeRequest(
    Request[EnvelopeResponse], api_key=58, versions="0", flexible="0+", listeners=("controller",)
):
    request_data: bytes = field(bytes_, "0+", default=b"")
    request_principal: bytes | None = field(bytes_, "0+", nullable="0+", default=b"")
    client_host_address: bytes = field(bytes_, "0+", default=b"")
