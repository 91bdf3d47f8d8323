"""One accepted connection: bytes to frames, frames to handlers, replies back in order.

The rules
- Frames are cut as slices out of the buffer that they arrived in. All connections share one; only
  what is left of an incomplete frame moves to a buffer of the connection's own, which grows as that
  frame's bytes arrive, and begins with room for four frames like the last one: who sends much is
  read in few system calls. So a connection without a frame in progress holds no buffer, and an
  announced length costs nothing. `memory.py` says how much all of them may hold.
- A reply that is ready when its turn comes is written at once, together with the others of the same
  turn: a system call costs more than a small reply. Replies that wait stand in `_waiting` in the
  order of their requests; behind a waiting one the others wait too.
- The socket is not read while `max_inflight` replies wait, while the write buffer is over its
  limit, while buffered requests are being worked off in slices, while the client is throttled, or
  before the connection was admitted: `_blocked` says so, in one place. Nor is it read while the
  frame in progress waits for memory.
- No task, queue or future is made for a plain request.

What cannot be parsed closes the connection without an answer, as Kafka does. `BufferedProtocol`'s
calls are the only entry; nothing here awaits.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.headers import decode_client_id
from protocol.messages.produce import ProduceRequest
from protocol.schema import ApiMessage, Buffer
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    EncodedReply,
    Entry,
    FramedReply,
    RequestContext,
    error_reply,
    peek,
    reply_parts,
)
from protocol.transport.memory import SCARCE_BYTES
from protocol.transport.repeated import LEARN_EVERY, RepeatedProduce, learn
from protocol.transport.stats import ApiStats

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from protocol.transport.server import Server

_int32 = struct.Struct(">i").unpack_from

NOTHING = memoryview(b"")
PRODUCE = int(ApiKey.PRODUCE)

BUFFER_BYTES_FIRST = 512
BUFFER_BYTES_KEPT = 1_114_112
"""A buffer above this size shrinks as soon as less is in it: 1 MiB of records and their request."""
ROOM_BYTES_MIN = 4096
GROWTH = 4
"""A full buffer grows by this factor up to the usual size, then it doubles."""
FRAMES_PER_TURN = 64
"""Requests of one connection served before others get the loop."""
REPLIES_TOGETHER_BYTES = 16_384
"""Replies are collected up to this size; more are written as they come."""


class _Slot:
    """A reply that waits, or is ready behind one that does. The times are those of `stats.py`."""

    __slots__ = (
        "correlation_id",
        "entry",
        "handled_ms",
        "parts",
        "ready",
        "ready_ms",
        "received_ms",
        "size",
        "started_ms",
        "stats",
        "version",
    )

    def __init__(
        self,
        entry: Entry,
        stats: ApiStats,
        version: int,
        correlation_id: int,
        times_ms: tuple[float, float, float],
    ) -> None:
        self.entry = entry
        self.stats = stats
        self.version = version
        self.correlation_id = correlation_id
        self.received_ms, self.started_ms, self.handled_ms = times_ms
        self.ready_ms = self.handled_ms
        self.ready = False
        self.size = 0
        self.parts: list[Buffer] = []


class ServerConnection(asyncio.BufferedProtocol):
    """A client's connection; handlers see it as `dispatch.Connection`."""

    __slots__ = (
        "_active_ms",
        "_admitted",
        "_close_callbacks",
        "_closing",
        "_collected",
        "_collected_bytes",
        "_draining",
        "_end",
        "_last_bytes",
        "_lost",
        "_muted",
        "_own_bytes",
        "_reading",
        "_repeated",
        "_sending_soon",
        "_server",
        "_start",
        "_starving",
        "_transport",
        "_turn_over",
        "_unlike",
        "_view",
        "_waiting",
        "_working",
        "_write_paused",
        "client_id",
        "closed_by_peer",
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
        # Bytes that arrived and are not served yet: `_view[_start:_end]`. The view is of the shared
        # buffer while what just arrived is served, then of one with `_own_bytes`, or of nothing.
        self._view = NOTHING
        self._start = 0
        self._end = 0
        self._own_bytes = 0
        self._last_bytes = 0  # the size of the last frame that was served
        self._starving = False
        self._waiting: list[_Slot] = []
        # Parts of replies that go into the next write.
        self._collected: list[Buffer] = []
        self._collected_bytes = 0
        self._sending_soon = False
        # The produce request that others are compared with, and how many were decoded.
        self._repeated: RepeatedProduce | None = None
        self._unlike = 0
        self._close_callbacks: dict[Callable[[], None], None] = {}
        self._active_ms = 0.0
        self._admitted = False
        self._muted = 0
        self._reading = True
        self._working = False
        self._turn_over = False
        self._write_paused = False
        self._closing = False
        self._draining = False
        self._lost = False
        self.closed_by_peer = False

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
        if not self._admitted:
            # uvloop begins to read after this call, whatever was asked for in it.
            asyncio.get_running_loop().call_soon(self._set_reading)

    def begin(self) -> None:
        """The connection is admitted."""
        self._admitted = True
        self._server.admitted()
        self._continue()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed_by_peer = not self._closing
        self._lost = self._closing = True
        self._server.forget(self, admitted=self._admitted)
        self._waiting.clear()
        self._collected.clear()
        self._keep_rest()
        self._server.memory.settle(self)
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
        if self._end:
            return self._view[self._end :]
        server = self._server
        if self._admitted and not server.memory.scarce:
            return server.shared[:]
        return server.shared[:SCARCE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._server.connection_stats.bytes_in += nbytes
        if not self._end:
            self._view = self._server.shared
        self._end += nbytes
        self._active_ms = self._server.clock.monotonic_ms()
        self._work()

    # --- the bytes of an incomplete frame ------------------------------------------------------

    def _keep_rest(self) -> None:
        """Put what is not served yet where it may stay, with room for more."""
        if self._closing:
            self._start = self._end
        held = self._end - self._start
        own = self._own_bytes
        if not held:
            self._start = self._end = 0
            if own:
                self._own_bytes = 0
                self._server.spare.put(self._view)
                self._server.memory.give_back(own)
            self._view = NOTHING
        elif not own:
            # These bytes are here and must be kept, whatever memory says.
            size = max(self._fitting(held), self._expected())
            self._server.memory.charge(size)
            self._move_to(size)
        elif self._end == own:
            self._find_room(held)
        elif own > BUFFER_BYTES_KEPT:
            self._shrink(held)

    def _find_room(self, held: int) -> None:
        """The own buffer is filled to its end."""
        own = self._own_bytes
        if held <= own // 2:
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
            return
        if self._blocked:
            # Its frames were not looked at: there may be room when they are served.
            return
        usual = self._server.limits.receive_buffer_bytes
        if own < usual:
            size = min(own * GROWTH, usual)
        else:
            size = min(own * 2, max(self._frame_bytes(held), held + ROOM_BYTES_MIN))
        memory = self._server.memory
        self._starving = not memory.grant(self, size - own, self._active_ms)
        if not self._starving:
            self._move_to(size)

    def _frame_bytes(self, held: int) -> int:
        """The size of the first frame that is held, as far as it is known."""
        return 4 + int(_int32(self._view, self._start)[0]) if held >= 4 else 4

    def _fitting(self, held: int) -> int:
        """How large an own buffer for so many bytes should be."""
        usual = self._server.limits.receive_buffer_bytes
        if 2 * held > usual:
            return min(4 * held, max(self._frame_bytes(held), held + ROOM_BYTES_MIN))
        size = BUFFER_BYTES_FIRST
        while size < 2 * held:
            size *= 2
        return size

    def _expected(self) -> int:
        """Room for what this connection probably sends next, by the frame that it sent last; 0
        while memory is short."""
        if not self._last_bytes or self._server.memory.scarce:
            return 0
        room = 1 << (4 * self._last_bytes - 1).bit_length()
        return min(room, self._server.limits.receive_buffer_bytes)

    def _move_to(self, size_bytes: int) -> None:
        """To an own buffer of this size."""
        held = self._end - self._start
        before, spare = self._view, self._server.spare
        self._view = spare.take(size_bytes)
        self._view[:held] = before[self._start : self._end]
        if self._own_bytes:
            spare.put(before)
        self._start, self._end = 0, held
        self._own_bytes = size_bytes

    def _shrink(self, held: int) -> None:
        size, own = self._fitting(held), self._own_bytes
        if size <= own // 2:
            self._move_to(size)
            self._server.memory.give_back(own - size)

    def give_memory_back(self) -> None:
        """Called now and then for a quiet connection."""
        if self._own_bytes:
            self._shrink(self._end - self._start)

    def feed(self) -> None:
        """There may be memory for the frame in progress."""
        self._starving = False
        self._keep_rest()
        self._set_reading()

    # --- frames --------------------------------------------------------------------------------

    @property
    def _blocked(self) -> bool:
        return (
            self._write_paused
            or self._turn_over
            or self._closing
            or self._draining
            or self._muted > 0
            or not self._admitted
            or len(self._waiting) >= self._server.limits.max_inflight
        )

    def _work(self) -> None:
        """Serve the frames that are here until one is cut or the connection is blocked."""
        if self._working:
            return
        self._working = True
        received_ms = self._server.moment_ms = self._server.clock.monotonic_ms()
        size_max = self._server.limits.request_bytes_max
        turn = FRAMES_PER_TURN
        served = 0
        while self._end - self._start >= 4 and not self._blocked:
            body = self._start + 4
            size = _int32(self._view, self._start)[0]
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
            served = size
            self._start = body + size
            self._serve(self._view[body : body + size], received_ms)
        self._working = False
        if self._repeated is not None:
            self._repeated.let_go()
        if self._collected and not self._sending_soon:
            self._send_collected()
        if served:
            self._last_bytes = served
        self._keep_rest()
        if turn < FRAMES_PER_TURN:
            self._server.memory.settle(self)
        self._set_reading()

    def _next_turn(self) -> None:
        self._turn_over = False
        self._continue()

    def _continue(self) -> None:
        """Something that blocked is over: first the requests that wait in the buffer, then more."""
        if not self._blocked:
            self._work()

    def _set_reading(self) -> None:
        reading = not (self._blocked or self._starving)
        if reading is not self._reading and not self._closing:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def mute(self, wait_ms: float) -> None:
        """Read no further request for this time: the client goes over a quota."""
        if wait_ms > 0.0:
            self._muted += 1
            asyncio.get_running_loop().call_later(wait_ms / 1000.0, self._unmute)
            self._set_reading()

    def keep(self, size_bytes: int, until: asyncio.Future[Any]) -> None:
        """Count bytes of a request that a handler keeps until then as request memory. They are
        there however long this connection lives."""
        memory = self._server.memory
        memory.charge(size_bytes)
        until.add_done_callback(lambda _: memory.give_back(size_bytes))

    def _unmute(self) -> None:
        self._muted -= 1
        self._continue()

    # --- requests ------------------------------------------------------------------------------

    def _serve(self, frame: memoryview, received_ms: float) -> None:
        entry: Entry | None = None
        version = correlation_id = 0
        started_ms = self._server.moment_ms
        try:
            api_key, version, correlation_id = peek(frame)
            repeated = self._repeated
            if (
                repeated is not None
                and api_key == PRODUCE
                and version == repeated.version
                and repeated.take(frame)
            ):
                entry, stats, message = repeated.entry, repeated.entry.stats, repeated.message
                self.client_id = repeated.client_id
            else:
                entry = self._server.handlers.find(api_key, version, self)
                if entry is None:
                    table = self._server.handlers
                    self._write(*reply_parts(table.unknown_api_versions(), None, 0, correlation_id))
                    return
                if entry.is_async:
                    frame = memoryview(bytes(frame))
                stats = entry.stats
                message = self._decode(entry, version, frame)
                if entry.kind_of is not None:
                    stats = entry.kinds[entry.kind_of(message)]
            stats.requests[version] += 1
            stats.bytes_in += len(frame) + 4
            context = RequestContext(
                self,
                entry.api,
                version,
                correlation_id,
                self.client_id,
                received_ms,
                self.principal,
                self.peer_host,
                self.listener,
                len(frame) + 4,
            )
            reply = entry.handler(context, message)
        except (ProtocolError, CloseConnection) as error:
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - `_failure` logs it and answers
            assert entry is not None
            times_ms = (received_ms, started_ms, self._server.clock.monotonic_ms())
            slot = _Slot(entry, stats, version, correlation_id, times_ms)
            self._ready(slot, self._failure(slot, error))
        else:
            handled_ms = self._server.moment_ms = self._server.clock.monotonic_ms()
            times_ms = (received_ms, started_ms, handled_ms)
            if reply is None or isinstance(reply, (ApiMessage, EncodedReply)):
                self._answer(entry, stats, version, correlation_id, times_ms, reply)
            else:
                slot = _Slot(entry, stats, version, correlation_id, times_ms)
                self._wait(slot, reply, len(frame) if entry.is_async else 0)

    def _decode(self, entry: Entry, version: int, frame: memoryview) -> Any:
        """The client id and the message. A produce request may become the one that those to come
        are compared with. ProtocolError."""
        self.client_id, offset = decode_client_id(frame, version >= entry.first_flexible)
        message, end = decode(entry.request, frame, version, offset)
        if end != len(frame):
            self._server.log_trailing(self, entry, len(frame) - end)
        elif isinstance(message, ProduceRequest) and not entry.is_async:
            unlike = self._unlike
            self._unlike = unlike + 1
            if unlike % LEARN_EVERY == 0:
                self._repeated = learn(entry, version, self.client_id, message, frame)
        return message

    def _answer(
        self,
        entry: Entry,
        stats: ApiStats,
        version: int,
        correlation_id: int,
        times_ms: tuple[float, float, float],
        body: Body,
    ) -> None:
        """Send a reply that did not wait, if there is any, or put it behind those that do."""
        server = self._server
        received_ms, started_ms, handled_ms = times_ms
        if body is not None:
            if self._waiting or self._closing:
                self._ready(_Slot(entry, stats, version, correlation_id, times_ms), body)
                return
            if type(body) is FramedReply:
                size, parts = reply_parts(body, entry, version, correlation_id)
                stats.bytes_out += size
                self._write(size, parts)
            else:
                encoded = self._encode(entry, stats, version, correlation_id, body)
                if encoded is not None:
                    self._write(*encoded)
            server.moment_ms = server.clock.monotonic_ms()
        now_ms = server.moment_ms
        stats.answered(
            started_ms - received_ms,
            handled_ms - started_ms,
            now_ms - handled_ms,
            now_ms - received_ms,
        )

    def _wait(self, slot: _Slot, reply: Any, copied_bytes: int) -> None:
        """Keep the reply's place in the order until its future is done, and count the copy of its
        request that a task holds until then."""
        if not asyncio.isfuture(reply):
            coroutine = cast("Coroutine[Any, Any, Body]", reply)
            reply = self._server.supervisor.spawn(
                f"{slot.entry.api.name} of connection {self.id}", coroutine, fatal=False
            )
        if reply.done():
            self._ready(slot, self._outcome(slot, reply))
            return
        self._waiting.append(slot)
        if copied_bytes:
            self.keep(copied_bytes, reply)
        reply.add_done_callback(partial(self._settle, slot))

    def _settle(self, slot: _Slot, future: asyncio.Future[Body]) -> None:
        body = self._outcome(slot, future)
        if not self._lost:
            slot.ready_ms = self._server.clock.monotonic_ms()
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
            self._write_slot(slot)

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
        try:
            return error_reply(slot.entry, slot.version, error)
        except CloseConnection as close:
            slot.stats.add_error(error.code)
            self.close(str(close))
            return None

    def _fill(self, slot: _Slot, body: Body) -> None:
        slot.ready = True
        encoded = self._encode(slot.entry, slot.stats, slot.version, slot.correlation_id, body)
        if encoded is not None:
            slot.size, slot.parts = encoded

    def _encode(
        self, entry: Entry, stats: ApiStats, version: int, correlation_id: int, body: Body
    ) -> tuple[int, list[Buffer]] | None:
        """The frame of a reply, with its bytes and errors counted; None where there is none."""
        if body is None or self._closing:
            return None
        try:
            encoded = reply_parts(body, entry, version, correlation_id)
        except Exception as error:  # noqa: BLE001 - or this connection would wait for ever
            self._server.handler_failed(self, entry.api.name, error)
            self.close("a response could not be encoded")
            return None
        stats.bytes_out += encoded[0]
        if isinstance(body, ApiMessage):
            entry.count_errors(body, stats.add_error)
        return encoded

    # --- replies -------------------------------------------------------------------------------

    def _send_ready(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].ready:
            slot = waiting.pop(0)
            if slot.parts and not self._closing:
                self._write_slot(slot)
        if self._draining and not waiting:
            self._shut()
        else:
            self._continue()

    def _write_slot(self, slot: _Slot) -> None:
        server, stats = self._server, slot.stats
        sending_ms = server.clock.monotonic_ms()
        self._write(slot.size, slot.parts)
        sent_ms = server.moment_ms = server.clock.monotonic_ms()
        received_ms, started_ms, handled_ms = slot.received_ms, slot.started_ms, slot.handled_ms
        stats.waited(slot.ready_ms - handled_ms, sending_ms - slot.ready_ms)
        stats.answered(
            started_ms - received_ms,
            handled_ms - started_ms,
            sent_ms - sending_ms,
            sent_ms - received_ms,
        )

    def _write(self, size: int, parts: list[Buffer]) -> None:
        self._server.connection_stats.bytes_out += size
        self._collected += parts
        self._collected_bytes += size
        if self._collected_bytes > REPLIES_TOGETHER_BYTES:
            self._send_collected()
        elif self._waiting and not self._working:
            # What let this one go lets others go in the same turn, as a rule.
            if not self._sending_soon:
                self._sending_soon = True
                asyncio.get_running_loop().call_soon(self._send_soon)
        elif not self._working:
            self._send_collected()

    def _send_soon(self) -> None:
        self._sending_soon = False
        if self._collected:
            self._send_collected()

    def _send_collected(self) -> None:
        parts, size = self._collected, self._collected_bytes
        self._collected, self._collected_bytes = [], 0
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif size <= REPLIES_TOGETHER_BYTES:
            self._transport.write(b"".join(parts))
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
        self._collected.clear()
        self._transport.abort()

    def quiet_ms(self, now_ms: float) -> float:
        """How long this client has neither sent anything nor had a request in work. A client that
        does not read its replies is quiet."""
        if self._closing:
            return now_ms - self._active_ms
        if (self._waiting and not self._write_paused) or self._muted or self._starving:
            return 0.0
        return now_ms - self._active_ms

    @property
    def is_closing(self) -> bool:
        return self._closing

    def _shut(self) -> None:
        self._closing = True
        if self._collected:
            self._send_collected()
        self._transport.close()
