"""One accepted connection: bytes to frames, frames to handlers, replies back in order.

The rules
- Frames are cut out of one receive buffer as slices. It starts small, grows to 256 KiB for a busy
  client and beyond only for a frame that needs it, and then only as that frame's bytes arrive: an
  announced length costs nothing.
- A reply that is ready when its turn comes is written at once. Replies that wait stand in
  `_waiting` in the order of their requests; behind a waiting one the others wait too.
- The socket is not read while `max_inflight` replies wait, while the write buffer is over its
  limit, or while buffered requests are being worked off in slices. `_blocked` says so, in one
  place.
- No task, queue or future is made for a plain request.

What cannot be parsed closes the connection without an answer, as Kafka does. `BufferedProtocol`'s
calls are the only entry; nothing here awaits.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from protocol.codec import decode
from protocol.errors import ApiError, EncodeError, ErrorCode, ProtocolError
from protocol.headers import decode_request_header
from protocol.schema import ApiMessage, Buffer
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    EncodedReply,
    Entry,
    RequestContext,
    error_reply,
    peek,
    reply_parts,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from protocol.transport.server import Server

_int32 = struct.Struct(">i").unpack_from

BUFFER_BYTES_FIRST = 16 * 1024
BUFFER_BYTES_KEPT = 1_114_112
"""A larger buffer is given back as soon as it is empty: 1 MiB of records and their request."""
ROOM_BYTES_MIN = 4096
"""With less room at the end of the buffer its content is moved to the front."""
FRAMES_PER_TURN = 64
"""Requests of one connection served before others get the loop."""


class _Slot:
    """A reply that waits, or is ready behind one that does."""

    __slots__ = ("correlation_id", "entry", "parts", "ready", "received_ms", "size", "version")

    def __init__(self, entry: Entry, version: int, correlation_id: int, received_ms: float) -> None:
        self.entry = entry
        self.version = version
        self.correlation_id = correlation_id
        self.received_ms = received_ms
        self.ready = False
        self.size = 0
        self.parts: list[Buffer] = []


class ServerConnection(asyncio.BufferedProtocol):
    """A client's connection; handlers see it as `dispatch.Connection`."""

    __slots__ = (
        "_active_ms",
        "_buffer",
        "_close_callbacks",
        "_closing",
        "_draining",
        "_end",
        "_grow",
        "_lost",
        "_reading",
        "_server",
        "_start",
        "_transport",
        "_turn_over",
        "_view",
        "_waiting",
        "_working",
        "_write_paused",
        "client_id",
        "id",
        "listener",
        "peer_host",
        "peer_port",
        "principal",
        "software_name",
        "software_version",
    )

    def __init__(self, server: Server, connection_id: int) -> None:
        self._server = server
        self.id = connection_id
        self.listener = server.listener
        self.principal = server.principal
        self.peer_host = ""
        self.peer_port = 0
        self.client_id: str | None = None
        self.software_name = ""
        self.software_version = ""
        self._transport = cast(asyncio.Transport, None)
        self._buffer = bytearray(BUFFER_BYTES_FIRST)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._grow = False
        self._waiting: deque[_Slot] = deque()
        self._close_callbacks: dict[Callable[[], None], None] = {}
        self._active_ms = 0.0
        self._reading = True
        self._working = False
        self._turn_over = False
        self._write_paused = False
        self._closing = False
        self._draining = False
        self._lost = False

    def __repr__(self) -> str:
        return f"ServerConnection({self.id}, {self.listener}, {self.peer_host}:{self.peer_port})"

    # --- what handlers may do ----------------------------------------------------------------

    def add_close_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` once when the connection is gone; at once if it already is."""
        if self._lost:
            fn()
        else:
            self._close_callbacks[fn] = None

    def remove_close_callback(self, fn: Callable[[], None]) -> None:
        """Forget `fn`; an unknown one is ignored."""
        self._close_callbacks.pop(fn, None)

    def close(self, reason: str) -> None:
        """Close after what was already written, dropping replies that wait. One log line."""
        if not self._closing:
            self._server.log_close(self, reason)
            self._shut()

    @property
    def inflight(self) -> int:
        """Replies that wait."""
        return len(self._waiting)

    # --- the transport's calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self._active_ms = self._server.clock.monotonic_ms()
        refusal = self._server.admit(self)
        if refusal is not None:
            self._server.log_close(self, refusal)
            self._closing = True
            self._transport.abort()
            return
        high = self._server.limits.write_high_bytes
        self._transport.set_write_buffer_limits(high=high, low=high // 4)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._closing = True
        self._server.forget(self)
        self._waiting.clear()
        self._view = memoryview(b"")
        self._buffer = bytearray()
        callbacks = list(self._close_callbacks)
        self._close_callbacks.clear()
        for fn in callbacks:
            fn()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._set_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._continue()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._grow or len(self._buffer) - self._end < ROOM_BYTES_MIN:
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._server.connection_stats.bytes_in += nbytes
        end = self._end = self._end + nbytes
        if end == len(self._buffer) < self._server.limits.receive_buffer_bytes:
            self._grow = True
        self._work()

    # --- frames --------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Move what is left to the front, and grow if that gives no room."""
        held = self._end - self._start
        capacity = len(self._buffer)
        usual = self._server.limits.receive_buffer_bytes
        if self._grow and capacity < usual:
            self._replace_buffer(usual)
        elif held == capacity:
            # A frame above the usual size, its length checked before: double, up to its end.
            needed = 4 + int(_int32(self._buffer, self._start)[0]) if held >= 4 else usual
            self._replace_buffer(min(capacity * 2, max(needed, usual)))
        elif self._start:
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        self._grow = False

    def _replace_buffer(self, capacity: int) -> None:
        held = self._end - self._start
        buffer = bytearray(max(capacity, held + 1))
        buffer[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, held

    def give_memory_back(self) -> None:
        """Called between requests of a quiet connection."""
        usual = self._server.limits.receive_buffer_bytes
        if self._start == self._end and len(self._buffer) > usual:
            self._replace_buffer(usual)

    @property
    def _blocked(self) -> bool:
        return (
            self._write_paused
            or self._turn_over
            or self._closing
            or self._draining
            or len(self._waiting) >= self._server.limits.max_inflight
        )

    def _work(self) -> None:
        """Serve the frames in the buffer until one is cut or the connection is blocked."""
        if self._working:
            return
        self._working = True
        received_ms = self._active_ms = self._server.clock.monotonic_ms()
        size_max = self._server.limits.request_bytes_max
        turn = FRAMES_PER_TURN
        while self._end - self._start >= 4 and not self._blocked:
            body = self._start + 4
            size = _int32(self._buffer, self._start)[0]
            if not 0 <= size <= size_max:
                self.close(f"a request of {size} bytes")
                break
            if self._end - body < size:
                break
            if not turn:
                self._turn_over = True
                asyncio.get_running_loop().call_soon(self._next_turn)
                break
            turn -= 1
            self._start = body + size
            self._serve(self._view[body : body + size], received_ms)
        self._working = False
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > BUFFER_BYTES_KEPT:
                self._replace_buffer(self._server.limits.receive_buffer_bytes)
        self._set_reading()

    def _next_turn(self) -> None:
        self._turn_over = False
        self._continue()

    def _continue(self) -> None:
        """Something that blocked is over: first the requests that wait in the buffer, then more."""
        if not self._blocked:
            self._work()

    def _set_reading(self) -> None:
        reading = not self._blocked
        if reading is not self._reading and not self._closing:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # --- requests ------------------------------------------------------------------------------

    def _serve(self, frame: memoryview, received_ms: float) -> None:
        entry: Entry | None = None
        version = correlation_id = 0
        try:
            api_key, version, correlation_id = peek(frame)
            entry = self._server.handlers.find(api_key, version)
            if entry is None:
                table = self._server.handlers
                self._write(*reply_parts(table.unknown_api_versions(), None, 0, correlation_id))
                return
            header, offset = decode_request_header(frame)
            self.client_id = header.client_id
            if entry.is_async:
                frame = memoryview(bytes(frame))
            message, end = decode(entry.request, frame, version, offset)
            stats = entry.stats
            stats.requests[version] += 1
            stats.bytes_in += len(frame) + 4
            if end != len(frame):
                self._server.log_trailing(self, entry, len(frame) - end)
            context = RequestContext(
                self,
                entry.api,
                version,
                correlation_id,
                header.client_id,
                received_ms,
                self.principal,
                self.peer_host,
                self.listener,
            )
            reply = entry.handler(context, message)
        except (ProtocolError, CloseConnection) as error:
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - `_failure` logs it and answers
            assert entry is not None
            slot = _Slot(entry, version, correlation_id, received_ms)
            self._ready(slot, self._failure(slot, error))
        else:
            if reply is None:
                return
            slot = _Slot(entry, version, correlation_id, received_ms)
            if isinstance(reply, (ApiMessage, EncodedReply)):
                self._ready(slot, reply)
            else:
                self._wait(slot, reply)

    def _wait(self, slot: _Slot, reply: Any) -> None:
        """Keep the reply's place in the order until its future is done."""
        if not asyncio.isfuture(reply):
            coroutine = cast("Coroutine[Any, Any, Body]", reply)
            reply = self._server.supervisor.spawn(
                f"{slot.entry.api.name} of connection {self.id}", coroutine, fatal=False
            )
        if reply.done():
            self._ready(slot, self._outcome(slot, reply))
            return
        self._waiting.append(slot)
        reply.add_done_callback(partial(self._settle, slot))

    def _settle(self, slot: _Slot, future: asyncio.Future[Body]) -> None:
        body = self._outcome(slot, future)
        if not self._lost:
            self._fill(slot, body)
            self._send_ready()

    def _ready(self, slot: _Slot, body: Body) -> None:
        """A reply that does not wait itself, but perhaps for others."""
        if body is None or self._closing:
            return
        self._fill(slot, body)
        if self._waiting:
            self._waiting.append(slot)
        else:
            self._write(slot.size, slot.parts)

    def _outcome(self, slot: _Slot, future: asyncio.Future[Body]) -> Body:
        if future.cancelled():
            self.close(f"{slot.entry.api.name} was given up")
            return None
        error = future.exception()
        return future.result() if error is None else self._failure(slot, error)

    def _failure(self, slot: _Slot, error: BaseException) -> Body:
        """The answer to a handler that raised; None when the connection was closed instead."""
        name = slot.entry.api.name
        if isinstance(error, (ProtocolError, CloseConnection)):
            self.close(f"{name}: {error}")
            return None
        if not isinstance(error, ApiError):
            self._server.handler_failed(self, name, error)
            error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        slot.entry.stats.add_error(error.code.name)
        try:
            return error_reply(slot.entry, slot.version, error)
        except CloseConnection as close:
            self.close(str(close))
            return None

    def _fill(self, slot: _Slot, body: Body) -> None:
        slot.ready = True
        stats = slot.entry.stats
        stats.add_time(self._server.clock.monotonic_ms() - slot.received_ms)
        if body is None or self._closing:
            return
        try:
            slot.size, slot.parts = reply_parts(body, slot.entry, slot.version, slot.correlation_id)
        except EncodeError as error:
            self._server.handler_failed(self, slot.entry.api.name, error)
            self.close("a response could not be encoded")
            return
        stats.bytes_out += slot.size

    # --- replies -------------------------------------------------------------------------------

    def _send_ready(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].ready:
            slot = waiting.popleft()
            if slot.parts and not self._closing:
                self._write(slot.size, slot.parts)
        if self._draining and not waiting:
            self._shut()
        else:
            self._continue()

    def _write(self, size: int, parts: list[Buffer]) -> None:
        self._server.connection_stats.bytes_out += size
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    # --- the end -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Read no more; close when the replies that wait have been sent."""
        if self._closing or self._draining:
            return
        self._draining = True
        if self._waiting:
            self._set_reading()
        else:
            self._shut()

    def abort(self) -> None:
        """Close at once, dropping what was not sent."""
        self._closing = True
        self._transport.abort()

    def quiet_ms(self, now_ms: float) -> float:
        """How long this client has neither sent anything nor had a request in work. A client that
        does not read its replies is quiet."""
        if self._waiting and not self._write_paused and not self._closing:
            return 0.0
        return now_ms - self._active_ms

    @property
    def is_closing(self) -> bool:
        return self._closing

    def _shut(self) -> None:
        self._closing = True
        self._transport.close()
