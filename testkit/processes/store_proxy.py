"""An HTTP proxy in front of an S3 server that injects faults of networks and stores (reliability
F33).

An object's key reveals a broker's operation: a segment's objects are named `<topic id>/<partition>/
<segment id>.<kind>`. So a fault hits one kind of work on one topic, and all other work continues. A
request can be held before it reaches the server, or before its response leaves. So a test can act
at one step of a copy or a removal.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from enum import Enum
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import h11

from testkit.processes.loop_thread import LoopThread
from testkit.processes.waiting import WAIT_S

FLIPPED_AT = 100
"""A position behind the header of a log's first batch: its checksum covers all of that."""
_KEY = re.compile(rb"([\w-]{22})/\d+/[\w-]{22}\.([a-z-]+)")
_READ_BYTES = 1 << 16


class Operation(Enum):
    """The kind of work that a request belongs to."""

    COPY = "copy"
    READ = "read"
    INDEX = "index"
    DELETE = "delete"
    MANIFEST = "manifest"
    OTHER = "other"


class StoreFault(Enum):
    """The effect of a fault on a request."""

    DOWN = "down"
    """No response: the connection ends."""
    SLOW = "slow"
    """The response is late, but before the client's own timeout."""
    ERROR = "5xx"
    RESET = "reset after success"
    """The request is executed, and the connection ends before the response."""
    TRUNCATED = "truncated"
    """An uploaded object loses its last byte. Of downloads every other response breaks off, and the
    others pretend to be whole."""
    FLIPPED = "bit flip"
    """One bit of an upload or download is flipped; of a deletion, one bit of the request."""
    MISSING = "missing"
    """An upload is acknowledged and not stored; a download is not found; a deleted object does not
    exist already."""


OF_CONTENT = frozenset({StoreFault.TRUNCATED, StoreFault.FLIPPED, StoreFault.MISSING})
"""Faults of requests with content: a request for the size alone gets the server's response."""


class Call(NamedTuple):
    """A request: its operation, method, topic (its id as text), and kind of object."""

    operation: Operation
    method: str
    topic: str
    kind: str


class Point(NamedTuple):
    """A step: the next request of this method and kind of object."""

    method: str
    kind: str
    answered: bool
    """True if the request has reached the server and only its response is held."""

    def __str__(self) -> str:
        return f"{'after' if self.answered else 'before'} {self.method} {self.kind}"


_Answer: TypeAlias = tuple[h11.Response, bytes]


class _HeldRequest:
    """A request that is held at a point, or will be."""

    def __init__(self, point: Point, topic: str) -> None:
        self.point = point
        self.topic = topic
        self.arrived = threading.Event()
        self.released = asyncio.Event()


class StoreProxy(LoopThread):
    """A proxy in front of the server at `target`, http://HOST:PORT; use as a context manager."""

    def __init__(self, target: str, slow_s: float = 1.0) -> None:
        super().__init__("store-proxy")
        self.port = 0
        self.calls: list[Call] = []
        place = urlsplit(target)
        self._target = (place.hostname, place.port)
        self._slow_s = slow_s
        self._faults: dict[tuple[Operation, str], StoreFault] = {}
        self._hits: Counter[tuple[Operation, str]] = Counter()
        self._held: list[_HeldRequest] = []

    def __enter__(self) -> StoreProxy:
        super().__enter__()
        self.port = self.listen(self._serve)
        return self

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- interface for tests --------------------------------------------------------------------

    def fail(self, fault: StoreFault, operation: Operation, topic: str) -> None:
        """Apply the fault to this operation on this topic from now on."""
        self.call(lambda: self._faults.update({(operation, topic): fault}))

    def heal(self) -> None:
        """End all faults for requests that arrive from now on."""
        self.call(self._faults.clear)

    def hits(self, operation: Operation, topic: str) -> int:
        """Return the number of requests that a fault has hit so far."""
        return self._hits[operation, topic]

    def hold(self, point: Point, topic: str) -> _HeldRequest:
        """Hold the next request at that point until `release`."""
        held = _HeldRequest(point, topic)
        self.call(lambda: self._held.append(held))
        return held

    def wait_until_held(self, held: _HeldRequest) -> None:
        assert held.arrived.wait(WAIT_S), f"no request reached {held.point}"

    def release(self, held: _HeldRequest) -> None:
        self.call(held.released.set)

    # --- handling of requests -------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            while connection.states == {h11.CLIENT: h11.IDLE, h11.SERVER: h11.IDLE}:
                request, body = await _message(connection, reader)
                if not isinstance(request, h11.Request):
                    break
                if not await self._answer(connection, request, body, writer):
                    break
                await writer.drain()
                if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
                    connection.start_next_cycle()
        except (OSError, EOFError, h11.ProtocolError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(
        self,
        connection: h11.Connection,
        request: h11.Request,
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Respond to a request. Returns: whether the connection stays open."""
        call = _call(request, body)
        self.calls.append(call)
        held = self._take_held(call)
        if held is not None and not held.point.answered:
            await _stand(held)
        fault = self._fault(call)
        answer = await self._met(fault, request, body)
        if held is not None and held.point.answered:
            await _stand(held)
        if answer is None:
            return False
        response, content = answer
        broken_off = len(content)
        if fault is StoreFault.TRUNCATED and call.method in ("GET", "DELETE", "POST"):
            broken_off = len(content) // 2
            if self._hits[call.operation, call.topic] % 2:
                content = content[:broken_off]
                headers = _headers(response, broken_off)
                response = h11.Response(status_code=response.status_code, headers=headers)
        writer.write(_sent(connection, response))
        if content:
            writer.write(_sent(connection, h11.Data(content))[:broken_off])
        if broken_off < len(content):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            return False
        writer.write(_sent(connection, h11.EndOfMessage()))
        return True

    def _take_held(self, call: Call) -> _HeldRequest | None:
        for held in self._held:
            if (held.topic, *held.point[:2]) == (call.topic, call.method, call.kind):
                self._held.remove(held)
                return held
        return None

    def _fault(self, call: Call) -> StoreFault | None:
        fault = self._faults.get((call.operation, call.topic))
        if fault is None or (fault in OF_CONTENT and call.method == "HEAD"):
            return None
        self._hits[call.operation, call.topic] += 1
        return fault

    async def _met(
        self, fault: StoreFault | None, request: h11.Request, body: bytes
    ) -> _Answer | None:
        """Return the response under this fault; None if there is no response."""
        if fault is StoreFault.DOWN:
            return None
        if fault is StoreFault.ERROR:
            return _error(503, "SlowDown")
        if fault is StoreFault.MISSING and request.method == b"PUT":
            return _empty(200)
        if fault is StoreFault.MISSING and request.method == b"GET":
            return _error(404, "NoSuchKey")
        if fault is StoreFault.SLOW:
            await asyncio.sleep(self._slow_s)
        response, content = await self._ask(request, _spoiled(fault, request, body))
        if fault is StoreFault.RESET:
            return None
        if fault is StoreFault.MISSING:
            response, content = await self._ask(request, body)
        if fault is StoreFault.FLIPPED and request.method == b"GET":
            content = _flipped(content)
        return response, content

    async def _ask(self, request: h11.Request, body: bytes) -> _Answer:
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            connection = h11.Connection(h11.CLIENT)
            headers = _headers(request, len(body))
            head = h11.Request(method=request.method, target=request.target, headers=headers)
            writer.write(_sent(connection, head))
            if body:
                writer.write(_sent(connection, h11.Data(body)))
            writer.write(_sent(connection, h11.EndOfMessage()))
            response, content = await _message(connection, reader)
            assert isinstance(response, h11.Response)
            return response, content
        finally:
            writer.transport.abort()


def _call(request: h11.Request, body: bytes) -> Call:
    method = request.method.decode()
    found = _KEY.search(request.target) or _KEY.search(body if method == "POST" else b"")
    if found is None:
        return Call(Operation.OTHER, method, "", "")
    topic, kind = found[1].decode(), found[2].decode()
    target = request.target
    if method == "DELETE" or target.endswith((b"?delete", b"?delete=")):
        operation = Operation.OTHER if b"uploadId" in target else Operation.DELETE
    elif kind == "manifest":
        operation = Operation.MANIFEST
    elif method != "GET":
        operation = Operation.COPY
    else:
        operation = Operation.READ if kind == "log" else Operation.INDEX
    return Call(operation, method, topic, kind)


async def _message(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> tuple[h11.Request | h11.Response | None, bytes]:
    """Return the next request or response, whole; None when the other side has closed."""
    head: h11.Request | h11.Response | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request | h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return head, bytes(body)
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None, b""


def _sent(connection: h11.Connection, event: h11.Event) -> bytes:
    return connection.send(event) or b""


def _headers(message: h11.Request | h11.Response, size_bytes: int) -> list[tuple[bytes, bytes]]:
    """Return the headers of a message whose body has another size now."""
    return [
        (name, b"%d" % size_bytes if name == b"content-length" else value)
        for name, value in message.headers
    ]


def _empty(status: int) -> _Answer:
    headers = [(b"content-length", b"0"), (b"etag", b'"0123456789abcdef"')]
    return h11.Response(status_code=status, headers=headers), b""


def _error(status: int, code: str) -> _Answer:
    body = f"<Error><Code>{code}</Code><Message>of a test</Message></Error>".encode()
    headers = [(b"content-type", b"application/xml"), (b"content-length", b"%d" % len(body))]
    return h11.Response(status_code=status, headers=headers), body


def _spoiled(fault: StoreFault | None, request: h11.Request, body: bytes) -> bytes:
    """Return the part of a request's body that reaches the server."""
    if fault is StoreFault.TRUNCATED and request.method == b"PUT":
        return body[:-1]
    if fault is StoreFault.FLIPPED and request.method in (b"PUT", b"POST"):
        return _flipped(body)
    return body


def _flipped(body: bytes) -> bytes:
    if not body:
        return body
    at = min(FLIPPED_AT, len(body) // 2)
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


async def _stand(held: _HeldRequest) -> None:
    held.arrived.set()
    await held.released.wait()
