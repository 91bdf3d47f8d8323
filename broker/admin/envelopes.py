"""A client's request in an Envelope for the controller, and the answer out of one (KIP-590).

Who asked and from where goes along: quotas and, one day, authorization are about the client.
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
    """`request` in this version, on behalf of the client of `context`."""
    header = RequestHeader(
        ApiKey(request.API_KEY), version, context.correlation_id, context.client_id
    )
    return EnvelopeRequest(
        request_data=encode_request_header(header) + encode(request, version),
        request_principal=_principal(context.principal),
        client_host_address=_address(context.client_host),
    )


def unwrap(context: RequestContext, request: Request[Any], version: int, data: bytes) -> Buffer:
    """The body of the answer. Raises ProtocolError for the answer to something else."""
    correlation_id, offset = decode_response_header(data, ApiKey(request.API_KEY), version)
    if correlation_id != context.correlation_id:
        raise ProtocolError("correlation id in an envelope", correlation_id)
    return memoryview(data)[offset:]


def _principal(text: str) -> bytes:
    """The principal in the form that Kafka's default builder reads: version, then fields."""
    kind, _, name = text.partition(":")
    version = DefaultPrincipalData.VERSIONS.last
    data = DefaultPrincipalData(type=kind, name=name)
    return version.to_bytes(2, "big") + encode(data, version)


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)  # a peer without an address of its own, as in simulation
