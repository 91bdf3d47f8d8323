"""Envelope (key 58), version 0: a client's request that a broker forwards (KIP-590).

Behaviour: the controller handles the inner request, header and body, as if the client had sent it,
with the client's principal and address instead of the broker's. It returns the whole inner
response. Only APIs that Kafka forwards are accepted inside.

Errors: NOT_CONTROLLER (also when leadership is lost while the request waits: the broker tries the
next controller), INVALID_REQUEST (unreadable, or not a forwardable API), UNSUPPORTED_VERSION (the
inner version is not served here), PRINCIPAL_DESERIALIZATION_FAILURE.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace

from controller.writer.writer import Controller
from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.codec import decode_field
from protocol.errors import ErrorCode, ProtocolError
from protocol.internal.default_principal_data import DefaultPrincipalData
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.transport.dispatch import CloseConnection, HandlerTable, RequestContext, peek
from protocol.transport.embedded import answer_embedded

MIN_VERSION = 0
MAX_VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`, whose other handlers serve the inner requests."""

    async def handle(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
        if not controller.is_leading:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        losses = controller.stats.lost_leadership
        try:
            inner = _on_behalf(context, request)
            parts = await _answer(table, request.request_data, inner)
        except _Refused as refused:
            return EnvelopeResponse(error_code=refused.code)
        if controller.stats.lost_leadership != losses:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return EnvelopeResponse(response_data=parts)

    table.register(ApiKey.ENVELOPE, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


class _Refused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


async def _answer(table: HandlerTable, frame: bytes, inner: RequestContext) -> bytes:
    try:
        api_key, api_version, _ = peek(frame)
    except ProtocolError as error:
        raise _Refused(ErrorCode.INVALID_REQUEST) from error
    if api_key not in FORWARDABLE:
        raise _Refused(ErrorCode.INVALID_REQUEST)
    try:
        table.find_embedded(api_key, api_version, inner.connection)
    except CloseConnection as error:
        raise _Refused(ErrorCode.UNSUPPORTED_VERSION) from error
    try:
        parts = await answer_embedded(table, frame, base=inner)
    except (CloseConnection, ProtocolError) as error:
        raise _Refused(ErrorCode.INVALID_REQUEST) from error
    return b"".join(parts or ())


def _on_behalf(context: RequestContext, request: EnvelopeRequest) -> RequestContext:
    """Return the context of the client on whose behalf the broker sends the request."""
    return replace(
        context,
        principal=_principal(request.request_principal) or context.principal,
        client_host=_address(request.client_host_address),
    )


def _principal(data: bytes | None) -> str | None:
    if not data:
        return None
    try:
        version = int.from_bytes(data[:2], "big", signed=True)
        if version not in DefaultPrincipalData.VERSIONS:
            raise ProtocolError("version of a principal", version, "0")
        principal, _ = decode_field(DefaultPrincipalData, data, version, 2)
    except ProtocolError as error:
        raise _Refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
    return f"{principal.type}:{principal.name}"


def _address(packed: bytes) -> str:
    try:
        return str(ipaddress.ip_address(packed))
    except ValueError as error:
        raise _Refused(ErrorCode.INVALID_REQUEST) from error
