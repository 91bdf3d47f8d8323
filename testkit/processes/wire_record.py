"""Recorded traffic between nodes and their clients: requests with their responses.

A `WireRecord` is given to proxies in front of nodes (`WireProxies.add`). Each connection belongs to
one listener; its ApiVersions requests identify the client.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.headers import decode_request_header, decode_response_header
from protocol.messages import request_class, response_class
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.schema import Request, Response
from protocol.transport.error_codes import count_errors

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")


class Watcher:
    """Observer of the bytes of one connection; this base class ignores them."""

    def asked(self, data: bytes) -> None:
        """Handle bytes from the client."""

    def answered(self, data: bytes) -> None:
        """Handle bytes from the node."""


class Exchange(NamedTuple):
    """A request and its response; those within an Envelope are exchanges of their own."""

    api_key: ApiKey
    version: int
    client_id: str | None
    request: Request[Any]
    response: Response

    def error_codes(self) -> list[int]:
        """Return every error code of the response except NONE."""
        found: list[int] = []
        count_errors(type(self.response))(self.response, found.append)
        return found

    def offered(self) -> dict[int, int]:
        """Return API keys and their highest versions, from a response to ApiVersions."""
        assert isinstance(self.response, ApiVersionsResponse)
        return {one.api_key: one.max_version for one in self.response.api_keys}


class RequestSent(NamedTuple):
    """A request, answered or not: a node that lacks its version ends the connection."""

    api_key: ApiKey
    version: int
    client_id: str | None


class Conversation(Watcher):
    """All traffic of one connection to `listener` of `node`."""

    def __init__(self, listener: str, node: int) -> None:
        self.listener = listener
        self.node = node
        self._asked, self._answered = bytearray(), bytearray()

    def asked(self, data: bytes) -> None:
        self._asked += data

    def answered(self, data: bytes) -> None:
        self._answered += data

    def requests(self) -> Iterator[RequestSent]:
        """Yield the requests in their order."""
        for frame in _frames(self._asked):
            header, _ = decode_request_header(frame)
            yield RequestSent(header.api_key, header.api_version, header.client_id)

    def exchanges(self) -> Iterator[Exchange]:
        """Yield exchanges in the order of the responses; a request without one is left out."""
        # Traffic continues. The responses are copied first, so that each one has its request.
        answers = bytes(self._answered)
        waiting = {_CORRELATION_ID.unpack_from(f, 4)[0]: f for f in _frames(self._asked)}
        for answer in _frames(answers):
            yield from _exchanges(waiting.pop(_CORRELATION_ID.unpack_from(answer)[0]), answer)

    def software(self) -> str:
        """Return the name of the client's software; empty if it gave no name."""
        for exchange in self.exchanges():
            request = exchange.request
            if isinstance(request, ApiVersionsRequest) and request.client_software_name:
                return request.client_software_name
        return ""


class WireRecord:
    """The conversations of a test, in the order in which they began."""

    def __init__(self) -> None:
        self.conversations: list[Conversation] = []

    def begin(self, listener: str, node: int = 0) -> Conversation:
        """Add another connection to this listener."""
        made = Conversation(listener, node)
        self.conversations.append(made)
        return made


def _frames(data: bytes | bytearray) -> Iterator[bytes]:
    """Yield whole frames without their lengths."""
    at = 0
    while at + _SIZE.size <= len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if at + size > len(data):
            return
        yield bytes(data[at : at + size])
        at += size


def _int16_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big", signed=True)


def _exchanges(requests: bytes, answer: bytes) -> Iterator[Exchange]:
    header, at = decode_request_header(requests)
    key, version = header.api_key, header.api_version
    _, body = decode_response_header(answer, key, version)
    if key == ApiKey.API_VERSIONS and _int16_at(answer, body) == ErrorCode.UNSUPPORTED_VERSION:
        return  # answered in version 0: the client repeats the request, in a version that exists
    request, _ = decode(request_class(key), requests, version, at)
    response, _ = decode(response_class(key), answer, version, body)
    yield Exchange(key, version, header.client_id, request, response)
    if isinstance(request, EnvelopeRequest):
        assert isinstance(response, EnvelopeResponse)
        if response.response_data is not None:
            yield from _exchanges(bytes(request.request_data), bytes(response.response_data))
