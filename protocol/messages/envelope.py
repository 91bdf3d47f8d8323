"""Envelope (API key 58), version 0.

Carries a client's request from a broker to the active controller, with its principal (KIP-590).

Behaviour
- `request_data` is the client's request with its header, as on the wire but without the length;
  `response_data` is the response with its header in the client's version. The broker forwards both
  without decoding them. Errors of the inner request are inside; error codes here concern the
  envelope.
- Only requests that are meant to be forwarded are accepted inside.
- Authorisation: CLUSTER_ACTION on the cluster, for the broker; inside, for the client's principal.
"""

from __future__ import annotations

from protocol.schema import Request, Response, bytes_, field, int16


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    # NOT_CONTROLLER: the broker forwards the request to the new one; the client does not notice.
    # PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST: the envelope is invalid.
    # UNSUPPORTED_VERSION: the controller lacks the inner version. CLUSTER_AUTHORIZATION_FAILED: the
    # sender is not a broker.
    error_code: int = field(int16, "0+", default=0)


class EnvelopeRequest(
    Request[EnvelopeResponse], api_key=58, versions="0", flexible="0+", listeners=("controller",)
):
    request_data: bytes = field(bytes_, "0+", default=b"")
    # DefaultPrincipalData behind its int16 version; null only from brokers without authentication.
    request_principal: bytes | None = field(bytes_, "0+", nullable="0+", default=b"")
    # 4 or 16 bytes of the client's IP address.
    client_host_address: bytes = field(bytes_, "0+", default=b"")
