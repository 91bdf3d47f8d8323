"""A connection to a node: requests out, responses matched by correlation id.

Requests are pipelined; a node answers one connection in order, but nothing here depends on it. One
timer per connection watches the oldest deadline. A request that times out closes the connection,
as Kafka's clients do: whatever was sent may still be processed, and a late answer must not be taken
for another's.

Everything runs on the loop's own clock and `create_connection`, so the same code serves tests, the
command line, and nodes in simulation.
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
"""Announced sizes up to this are allocated at once, larger ones as their bytes arrive."""
_COPIED_BYTES_MAX = 64 * 1024
_EXCESS_FACTOR = 12
"""A response may take sixteen times its frame: metadata of a million partitions takes eight."""
_int32 = struct.Struct(">i")
_int16 = struct.Struct(">h")


def failed_at_once(error: BaseException) -> bool:
    """Whether `Connection.connect` ended because nobody listens there, or there is no way there.
    Not when it took its time or the node hung up: then somebody may be there."""
    return isinstance(error, OSError) and not isinstance(error, ConnectionLost | TimeoutError)


class ConnectionLost(ConnectionError):
    """The connection is gone, or a request on it took too long; an answer will not come."""


class _Way:
    """How requests of one class go over one connection: the version, and the bytes of the header
    before and behind the correlation id."""

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
    """One connection to one node. Make it with `connect`."""

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.versions: dict[int, VersionRange] = {}
        """Versions by API key, as the node offers them."""
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
        self._timer_s = 0.0  # uvloop's timers do not say when they run if that is now
        self._failure: ConnectionLost | None = None
        self._buffer = bytearray(_BUFFER_BYTES_FIRST)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._handed_out = False
        self._closed = self._loop.create_future()
        self._paused = False
        self._decoding: tuple[Decoding[Response], _Pending] | None = None
        # Requests that wait until the node reads. They leave in the order in which they came, each
        # when the one before it is written and there is room: a batch that overtook another one of
        # its producer would be out of order for the leader.
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
        """Connect, and request the node's API versions under this name.

        Args:
            between_nodes: notice a node whose machine is gone (`half_open`).
            expected: the node that the caller expects at this address (KIP-1242). A node that does
            not know ApiVersions 5 is not compared.

        Raises OSError (ConnectionLost, a timeout and a refused connection are such), ApiError when
        the node refuses ApiVersions: REBOOTSTRAP_REQUIRED if it is not the expected one.
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
            # A name that is no name (too long a label, a zero byte) is as good as one unknown.
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
            # The node answered in version 0 and says which versions it has.
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
        """No request can be sent any more."""
        return self._failure is not None

    @property
    def inflight(self) -> int:
        """Requests without an answer yet."""
        return len(self._pending)

    def when_closed(self, fn: Callable[[], None]) -> None:
        """Call `fn` soon after the connection has ended, whoever ended it."""
        self._closed.add_done_callback(lambda _: fn())

    async def close(self) -> None:
        """Close, fail what is pending, and wait until the transport is gone."""
        self._fail("closed")
        self._transport.close()
        await asyncio.wait([self._closed])

    def abort(self) -> None:
        """Close at once, without waiting."""
        self._fail("closed")
        self._transport.abort()

    # --- requests ------------------------------------------------------------------------------

    def version_for(self, request: type[Request[Any]], version: int | None = None) -> int:
        """The highest version both sides know, without those that are taken on request only;
        `version` is only checked against the node's. Private versions (`private_numbers`) are only
        for nodes of ours.

        Raises ApiError(UNSUPPORTED_VERSION) when there is none.
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
        """Return whether this version may be used: the node offers it, and a private version only
        counts if the node is one of ours (`private_numbers`)."""
        offered = self._usable.get(request.API_KEY)
        return offered is not None and version in offered

    async def request(
        self,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        version: int | None = None,
    ) -> R:
        """Send a request and wait for its response.

        Raises ConnectionLost when the connection ends or `timeout_ms` passes first (which ends it),
        ApiError(UNSUPPORTED_VERSION), EncodeError, ProtocolError for an unreadable response.
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
        """`request` without waiting: the frame is written now, the future has the response.

        Does not wait for a full write buffer, and overtakes requests that do; whoever sends much
        uses `request`. Raises what `request` raises before sending.
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
        """Send a request to which no response comes (Produce with acks=0)."""
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
        # A caller that stopped waiting does not keep the connection under a deadline.
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
        """A new buffer that begins with what was not read yet. Never moves inside the old one:
        responses that were handed out may be slices of it."""
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
        """Read the responses that are whole, until one takes longer to decode."""
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
            self._broken(f"a response nobody asked for ({correlation_id})")
            return
        if pending.future.done():
            return
        # The caller may keep the response, whose record sets are slices: a small frame is copied
        # out, a large one keeps this buffer and the connection takes another.
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
        except Exception as error:  # noqa: BLE001 - the caller must learn of it, whatever it was
            self._unreadable(pending, error)

    def _decode_slice(self) -> None:
        """Decode a slice of a large response; if it is not whole then, read no further."""
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
    """Return the response, None of one that takes longer."""
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
        # A node that does not know the version answers in version 0 (KIP-511).
        (error_code,) = _int16.unpack_from(frame, offset)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    return version, offset
