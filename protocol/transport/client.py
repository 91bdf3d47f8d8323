"""A client's connection to a node: it sends requests and matches responses by correlation id.

Requests are pipelined. A node responds on one connection in order, but this module does not rely on
it. One timer per connection is set to the earliest deadline. A request that times out closes the
connection, as in Kafka's clients: the node may still process its requests, and a late response must
not be mistaken for another one.

The connection uses only the event loop's clock and `create_connection`. Therefore the same code
serves tests, the command line, and nodes in the simulation.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode_parts
from protocol.decoding import (
    EXCESS_BYTES_MAX,
    WHOLE_BYTES,
    Allowance,
    Decoding,
    decode_at_once,
)
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.private_numbers import usable, without_private
from protocol.schema import ApiMessage, Buffer, Request, Response, VersionRange
from protocol.transport.decode_queue import decode_slice
from protocol.transport.half_open import notice_when_gone
from protocol.transport.node_identity import NodeIdentity
from protocol.transport.own_names import TOOL_SOFTWARE_NAME

R = TypeVar("R", bound=Response)

RESPONSE_BYTES_MAX = 1 << 30
SOFTWARE_VERSION = "0.1.0"
DEFAULT_TIMEOUT_MS = 30_000.0

_BUFFER_BYTES_FIRST = 16 * 1024
_BUFFER_BYTES = 256 * 1024
_ROOM_BYTES_MIN = 4096
_BELIEVED_BYTES_MAX = 16 * 1024 * 1024
"""Announced sizes up to this are allocated at once, larger ones while their bytes arrive."""
_COPIED_BYTES_MAX = 64 * 1024
_EXCESS_FACTOR = 12
"""A response may take about 16 times its frame's size; metadata of a million partitions takes 8."""
_int32 = struct.Struct(">i")
_int16 = struct.Struct(">h")


def failed_at_once(error: BaseException) -> bool:
    """Return whether `Connection.connect` failed because the port is closed or has no route.

    A timeout or a closed connection is not such a failure: a node may be running there.
    """
    return isinstance(error, OSError) and not isinstance(error, ConnectionLost | TimeoutError)


class ConnectionLost(ConnectionError):
    """The connection has ended, or a request on it timed out: no response will come."""


class _Way:
    """The encoding of one request class on a connection.

    It has the version, and the header's bytes before and after the correlation id.
    """

    __slots__ = ("api", "head", "response", "tail", "version")

    def __init__(self, cls: type[Request[Any]], version: int, client_id: str | None) -> None:
        self.api = ApiKey(cls.API_KEY)
        self.version = version
        self.response: type[Response] = cls.response_class()
        header = encode_request_header(RequestHeader(self.api, version, 0, client_id))
        self.head = bytes(4) + header[:4]
        self.tail = header[8:]


class _Pending:
    __slots__ = ("api", "deadline_s", "future", "response", "version")

    def __init__(
        self,
        api: ApiKey,
        version: int,
        response: type[Response],
        future: asyncio.Future[Any],
        deadline_s: float,
    ) -> None:
        self.api = api
        self.version = version
        self.response = response
        self.future = future
        self.deadline_s = deadline_s


class Connection(asyncio.BufferedProtocol):
    """One connection to one node, created with `connect`."""

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.versions: dict[int, VersionRange] = {}
        """The versions that the node supports, by API key."""
        self._usable: Mapping[int, VersionRange] = {}
        self._ways: dict[tuple[type[Request[Any]], int | None], _Way] = {}
        self.features: ApiVersionsResponse | None = None
        self.peer: tuple[str, int] = ("", 0)
        self.requests = self.responses = self.bytes_out = self.bytes_in = 0
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._pending: dict[int, _Pending] = {}
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0  # uvloop's timers do not contain a time that is now
        self._failure: ConnectionLost | None = None
        self._buffer = bytearray(_BUFFER_BYTES_FIRST)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._handed_out = False
        self._closed = self._loop.create_future()
        self._paused = False
        self._decoding: tuple[Decoding[Response], _Pending] | None = None
        # Requests that wait until the node reads. They are written in order, each once the one
        # before it is written and the write buffer has space: a batch that overtakes another one of
        # its producer is out of order for the leader.
        self._line: deque[asyncio.Future[None]] = deque()

    # --- life ----------------------------------------------------------------------------------

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        client_id: str | None = None,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        negotiate: bool = True,
        software_name: str = TOOL_SOFTWARE_NAME,
        between_nodes: bool = False,
        expected: NodeIdentity | None = None,
    ) -> Connection:
        """Connect, and request the node's API versions.

        Args:
            timeout_ms: limit of the connection and of ApiVersions together.
            negotiate: request the API versions; without them each request uses its last version.
            software_name: the client's name in ApiVersions.
            between_nodes: detect a peer whose machine has failed (`half_open`).
            expected: the node that the caller expects at this address (KIP-1242). A node without
                ApiVersions 5 does not compare it.

        Raises:
            OSError: the connection was refused, timed out or ended (ConnectionLost).
            ApiError: the node refused ApiVersions; REBOOTSTRAP_REQUIRED if it is another node than
                the expected one.
        """
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            _, connection = await asyncio.wait_for(
                loop.create_connection(lambda: cls(client_id), host, port), timeout_ms / 1000.0
            )
        except TimeoutError:
            raise ConnectionLost(f"connect to {host}:{port}: {timeout_ms:.0f} ms passed") from None
        except (ValueError, OverflowError) as error:
            # An invalid host name (too long a label, a zero byte) is handled like an unknown one.
            raise ConnectionLost(f"connect to {host!r}:{port}: {error}") from error
        connection.peer = (host, port)
        if between_nodes:
            notice_when_gone(connection._transport)
        if negotiate:
            left_ms = timeout_ms - (loop.time() - started_s) * 1000.0
            try:
                await connection._negotiate(max(left_ms, 1.0), software_name, expected)
            except BaseException:
                connection.abort()
                raise
        return connection

    async def _negotiate(
        self, timeout_ms: float, software_name: str, expected: NodeIdentity | None
    ) -> None:
        request = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=SOFTWARE_VERSION
        )
        if expected is not None:
            request.cluster_id, request.node_id = expected
        version = ApiVersionsRequest.VERSIONS.last
        answer = await self.request(request, timeout_ms, version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The node replied in version 0, with the versions that it supports.
            offered = [key for key in answer.api_keys if key.api_key == ApiKey.API_VERSIONS]
            version = min(version, offered[0].max_version if offered else 0)
            answer = await self.request(request, timeout_ms, version)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        self.features = answer
        self.versions = {
            key.api_key: VersionRange(key.min_version, key.max_version) for key in answer.api_keys
        }
        self._usable = usable(self.versions)
        self._ways.clear()

    @property
    def is_closed(self) -> bool:
        """True if no request can be sent any more."""
        return self._failure is not None

    @property
    def inflight(self) -> int:
        """Number of requests without a response yet."""
        return len(self._pending)

    def when_closed(self, fn: Callable[[], None]) -> None:
        """Call `fn` soon after the connection has ended, for any reason."""
        self._closed.add_done_callback(lambda _: fn())

    async def close(self) -> None:
        """Close, fail the pending requests, and wait until the transport is closed."""
        self._fail("closed")
        self._transport.close()
        await asyncio.wait([self._closed])

    def abort(self) -> None:
        """Close at once, without waiting."""
        self._fail("closed")
        self._transport.abort()

    # --- requests ------------------------------------------------------------------------------

    def version_for(self, request: type[Request[Any]], version: int | None = None) -> int:
        """Return the version for a request: the highest that both sides support.

        Versions of `ON_REQUEST` are used only if the caller names them. Private versions
        (`private_numbers`) are used only with Kraftbox's own nodes.

        Args:
            version: use this version if the node supports it, in place of the highest.

        Raises:
            ApiError: UNSUPPORTED_VERSION if there is no such version.
        """
        api = ApiKey(request.API_KEY)
        known = request.VERSIONS
        if version is None and request.ON_REQUEST:
            known = VersionRange(known.first, request.ON_REQUEST.first - 1)
        if not self.versions:
            return without_private(api, known).last if version is None else version
        offered = self._usable.get(api)
        common = known.intersect(offered) if offered is not None else None
        if common and version is None:
            return common.last
        if common and version is not None and version in common:
            return version
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{api.name} {version if version is not None else ''}: the node offers {offered}",
        )

    def offers(self, request: type[Request[Any]], version: int) -> bool:
        """Return whether the node supports this version.

        A private version (`private_numbers`) counts only if the node is one of Kraftbox's own.
        """
        offered = self._usable.get(request.API_KEY)
        return offered is not None and version in offered

    async def request(
        self,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        version: int | None = None,
    ) -> R:
        """Send a request and wait for its response.

        Raises:
            ConnectionLost: the connection ended, or `timeout_ms` passed, which ends it.
            ApiError: UNSUPPORTED_VERSION, see `version_for`.
            EncodeError: the version cannot represent a value.
            ProtocolError: the response is unreadable.
        """
        if not self._paused and not self._line:
            return await self.send(message, timeout_ms, version)
        turn: asyncio.Future[None] = self._loop.create_future()
        self._line.append(turn)
        try:
            await asyncio.wait([turn], timeout=timeout_ms / 1000.0)
            if not turn.done():
                self._fail("the node does not read")
                self._transport.abort()
            response = self.send(message, timeout_ms, version)
        finally:
            self._line.remove(turn)
            self._admit()
        return await response

    def send(
        self,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        version: int | None = None,
    ) -> asyncio.Future[R]:
        """Write a request at once and return the future of its response.

        It does not wait for space in the write buffer, and overtakes requests that do. A caller
        that sends many requests uses `request`.

        Raises:
            ConnectionLost: the connection has ended.
            ApiError: UNSUPPORTED_VERSION, see `version_for`.
            EncodeError: the version cannot represent a value.
        """
        if self._failure is not None:
            raise ConnectionLost(str(self._failure))
        way = self._way(type(message), version)
        correlation_id = self._write(message, way)
        future: asyncio.Future[R] = self._loop.create_future()
        deadline_s = self._loop.time() + timeout_ms / 1000.0
        pending = _Pending(way.api, way.version, way.response, future, deadline_s)
        self._pending[correlation_id] = pending
        if self._timer is None or pending.deadline_s < self._timer_s:
            self._arm(pending.deadline_s)
        return future

    def send_unanswered(self, message: Request[Any], version: int | None = None) -> None:
        """Send a request that has no response, such as Produce with acks=0."""
        if self._failure is not None:
            raise ConnectionLost(str(self._failure))
        self._write(message, self._way(type(message), version))

    def _way(self, cls: type[Request[Any]], version: int | None) -> _Way:
        way = self._ways.get((cls, version))
        if way is None:
            way = _Way(cls, self.version_for(cls, version), self.client_id)
            self._ways[cls, version] = way
        return way

    def _write(self, message: ApiMessage, way: _Way) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        prefix = way.head + _int32.pack(correlation_id) + way.tail
        parts = encode_parts(message, way.version, prefix)
        first = parts[0]
        assert type(first) is bytearray
        size_bytes = sum(map(len, parts))
        _int32.pack_into(first, 0, size_bytes - 4)
        self.requests += 1
        self.bytes_out += size_bytes
        if len(parts) == 1:
            self._transport.write(first)
        else:
            self._transport.writelines(parts)
        return correlation_id

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        # A request whose caller has stopped waiting has no deadline.
        deadlines = [one.deadline_s for one in self._pending.values() if not one.future.done()]
        if not deadlines:
            return
        earliest_s = min(deadlines)
        if earliest_s > self._loop.time():
            self._arm(earliest_s)
            return
        late = next(one for one in self._pending.values() if one.deadline_s == earliest_s)
        self._fail(f"{late.api.name} was not answered in time")
        self._transport.abort()

    def _fail(self, why: str) -> None:
        if self._failure is not None:
            return
        host, port = self.peer
        self._failure = ConnectionLost(f"{host}:{port}: {why}")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending = list(self._pending.values())
        self._pending.clear()
        if self._decoding is not None:
            pending.append(self._decoding[1])
            self._decoding[0].stop()
            self._decoding = None
        for one in pending:
            if not one.future.done():
                one.future.set_exception(ConnectionLost(str(self._failure)))
        self.resume_writing()

    # --- the transport's calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=1024 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("closed by the node" if exc is None else f"lost ({exc})")
        self._view = memoryview(b"")
        self._buffer = bytearray()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._paused = self._failure is None

    def resume_writing(self) -> None:
        self._paused = False
        self._admit()

    def _admit(self) -> None:
        if self._line and not self._paused and not self._line[0].done():
            self._line[0].set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        if len(self._buffer) - self._end < _ROOM_BYTES_MIN:
            self._make_room()
        return self._view[self._end :]

    def _make_room(self) -> None:
        """Move the unread bytes to a new buffer.

        They never move inside the old one: callers may hold responses that are slices of it.
        """
        held = self._end - self._start
        needed = _BUFFER_BYTES
        if held >= 4:
            needed = 4 + int(_int32.unpack_from(self._buffer, self._start)[0])
        if needed > _BELIEVED_BYTES_MAX:
            needed = min(needed, max(2 * held, _BELIEVED_BYTES_MAX))
        self._replace_buffer(max(needed, held) + _ROOM_BYTES_MIN)

    def _replace_buffer(self, capacity: int) -> None:
        held = self._end - self._start
        buffer = bytearray(max(capacity, _BUFFER_BYTES))
        buffer[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, held

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.bytes_in += nbytes
        self._read_frames()

    def _read_frames(self) -> None:
        """Read the complete responses, up to one that must be decoded in slices."""
        while self._end - self._start >= 4 and self._failure is None and self._decoding is None:
            body = self._start + 4
            (size,) = _int32.unpack_from(self._buffer, self._start)
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                self._broken(f"a response of {size} bytes")
                return
            if self._end - body < size:
                break
            self._start = body + size
            self._receive(self._view[body : body + size])
        if self._handed_out:
            self._handed_out = False
            self._replace_buffer(_BUFFER_BYTES)
        elif self._start == self._end:
            self._start = self._end = 0

    def _receive(self, frame: memoryview) -> None:
        if len(frame) < 4:
            self._broken(f"a response of {len(frame)} bytes")
            return
        self.responses += 1
        (correlation_id,) = _int32.unpack_from(frame)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            self._broken(f"a response with the unknown correlation id {correlation_id}")
            return
        if pending.future.done():
            return
        # The caller may keep the response, whose record sets are slices of the frame. A small frame
        # is copied; a large one keeps this buffer, and the connection uses a new one.
        kept: Buffer = frame
        if len(frame) < _COPIED_BYTES_MAX:
            kept = bytes(frame)
        else:
            self._handed_out = True
        try:
            response = _read_response(kept, pending)
            if response is None:
                self._decoding = _begin_response(memoryview(kept), pending), pending
                self._decode_slice()
            else:
                pending.future.set_result(response)
        except Exception as error:  # noqa: BLE001 - the caller must receive every error
            self._unreadable(pending, error)

    def _decode_slice(self) -> None:
        """Decode a slice of a large response; stop reading until it is complete."""
        assert self._decoding is not None
        decoding, pending = self._decoding
        if decode_slice(decoding, self._now_ms):
            self._decoding = None
            if not pending.future.done():
                pending.future.set_result(decoding.message)
        else:
            self._transport.pause_reading()
            self._loop.call_soon(self._decode_on)

    def _decode_on(self) -> None:
        if self._decoding is None:
            return
        _, pending = self._decoding
        try:
            self._decode_slice()
        except Exception as error:  # noqa: BLE001 - as in `_receive`
            self._decoding = None
            self._unreadable(pending, error)
        if self._decoding is None and self._failure is None:
            self._transport.resume_reading()
            self._read_frames()

    def _now_ms(self) -> float:
        return self._loop.time() * 1000.0

    def _unreadable(self, pending: _Pending, error: Exception) -> None:
        if not isinstance(error, ProtocolError):
            error = ProtocolError(f"a response that cannot be read: {error!r}")
        if not pending.future.done():
            pending.future.set_exception(error)
        self._broken(f"an unreadable {pending.api.name} response: {error}")

    def _broken(self, why: str) -> None:
        self._fail(why)
        self._transport.abort()


def _read_response(frame: Buffer, pending: _Pending) -> Response | None:
    """Return the response; None if it must be decoded in slices."""
    version, offset = _version_and_offset(frame, pending)
    if len(frame) <= WHOLE_BYTES:
        return decode(pending.response, frame, version, offset)[0]
    decoded = decode_at_once(pending.response, memoryview(frame), version, offset)
    return None if decoded is None else decoded[0]


def _begin_response(frame: memoryview, pending: _Pending) -> Decoding[Response]:
    version, offset = _version_and_offset(frame, pending)
    excess_max = EXCESS_BYTES_MAX + _EXCESS_FACTOR * len(frame)
    return Decoding(pending.response, frame, version, offset, Allowance(excess_max), excess_max)


def _version_and_offset(frame: Buffer, pending: _Pending) -> tuple[int, int]:
    _, offset = decode_response_header(frame, pending.api, pending.version)
    version = pending.version
    if pending.api is ApiKey.API_VERSIONS and len(frame) >= offset + 2:
        # A node that does not support the version replies in version 0 (KIP-511).
        (error_code,) = _int16.unpack_from(frame, offset)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    return version, offset
