"""Envelopes: a client's request for the controller, and the controller's response (KIP-590).

The envelope contains the client's principal and address: quotas apply to the client, and
authorization will.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ProtocolError
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.internal.default_principal_data import DefaultPrincipalData
from protocol.messages.envelope import EnvelopeRequest
from protocol.schema import Buffer, Request
from protocol.transport.dispatch import RequestContext


def wrap(context: RequestContext, request: Request[Any], version: int) -> EnvelopeRequest:
    """Wrap `request` in this version, on behalf of the client of `context`."""
    header = RequestHeader(
        ApiKey(request.API_KEY), version, context.correlation_id, context.client_id
    )
    return EnvelopeRequest(
        request_data=encode_request_header(header) + encode(request, version),
        request_principal=_principal(context.principal),
        client_host_address=_address(context.client_host),
    )


def unwrap(context: RequestContext, request: Request[Any], version: int, data: bytes) -> Buffer:
    """Return the body of the response. Raises ProtocolError if it belongs to another request."""
    correlation_id, offset = decode_response_header(data, ApiKey(request.API_KEY), version)
    if correlation_id != context.correlation_id:
        raise ProtocolError("correlation id in an envelope", correlation_id)
    return memoryview(data)[offset:]


def _principal(text: str) -> bytes:
    """Return the principal in the form that Kafka's default builder reads: version, then fields."""
    kind, _, name = text.partition(":")
    version = DefaultPrincipalData.VERSIONS.last
    data = DefaultPrincipalData(type=kind, name=name)
    return version.to_bytes(2, "big") + encode(data, version)


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)  # a peer without an address of its own, as in simulation
