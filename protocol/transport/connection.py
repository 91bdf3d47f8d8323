"""Shell: One accepted connection: moves bytes between a socket and an exchange.

`exchange.py` frames requests and orders replies, `receive_buffer.py` holds the bytes, and
`request_flow.py` runs the handlers. This module owns the asyncio transport, the timers and the
close callbacks. asyncio calls the methods of `BufferedProtocol`; nothing here awaits.

A reply is written once it is ready and no earlier reply is pending, together with the others of the
same event-loop iteration.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Protocol, cast

from protocol.decoding import Decoding
from protocol.errors import ProtocolError
from protocol.schema import Buffer
from protocol.transport.decode_queue import DecodeQueue
from protocol.transport.exchange import (
    CLOSED,
    DECODING,
    DRAINING,
    NOT_ADMITTED,
    REPLIES_TOGETHER_BYTES,
    TURN_OVER,
    WRITE_PAUSED,
    Exchange,
)
from protocol.transport.half_open import notice_when_gone
from protocol.transport.limits import ServerLimits
from protocol.transport.listener_log import ListenerLog
from protocol.transport.memory import RequestMemory
from protocol.transport.receive_buffer import BufferSpace
from protocol.transport.repeated import RepeatedProduce
from protocol.transport.request_flow import LargeRequest, LaterReply, RequestFlow
from protocol.transport.stats import ConnectionStats
from protocol.transport.turns import Turns
from runtime.clock import Clock
from runtime.slices import SLICE_MS


class Listener(Protocol):
    """The part of a listener that a connection uses; `server.Server` implements it."""

    listener: str
    clock: Clock
    flow: RequestFlow
    log: ListenerLog
    memory: RequestMemory
    space: BufferSpace
    connection_stats: ConnectionStats
    limits: ServerLimits
    turns: Turns
    crowded: bool
    for_nodes: bool
    decode_queue: DecodeQueue

    def admit(self, connection: ServerConnection) -> str | None:
        """Accept a new connection; the listener serves it from its call of `begin` on.

        Returns: the reason for a refusal, or None.
        """

    def admitted(self) -> None:
        """Count a connection that is served from now on."""

    def overran(self, serve_rest: Callable[[], None]) -> None:
        """One connection took all of an iteration: serve its other requests in the next."""

    def forget(self, connection: ServerConnection, *, admitted: bool) -> None:
        """Remove a connection that has ended."""


class ServerConnection(asyncio.BufferedProtocol):
    """The connection of a client; handlers use it as a `dispatch.Connection`."""

    __slots__ = (
        "_active_ms",
        "_behind_callbacks",
        "_close_callbacks",
        "_decoding",
        "_listener",
        "_reading",
        "_sending_soon",
        "_transport",
        "_working",
        "asked_epochs_ms",
        "client_id",
        "closed_by_peer",
        "exchange",
        "id",
        "is_lost",
        "listener",
        "peer_host",
        "peer_port",
        "repeated",
        "software_name",
        "software_version",
        "unlike",
    )

    def __init__(self, listener: Listener, connection_id: int) -> None:
        self._listener = listener
        self.id = connection_id
        self.listener = listener.listener
        self.peer_host = ""
        self.peer_port = 0
        self.client_id: str | None = None
        self.software_name = ""
        self.software_version = ""
        self.asked_epochs_ms = -math.inf
        limits = listener.limits
        self.exchange: Exchange[LaterReply] = Exchange(
            listener.space, limits.request_bytes_max, limits.max_inflight
        )
        self.repeated: RepeatedProduce | None = None
        self.unlike = 0
        self._transport = cast(asyncio.Transport, None)
        self._close_callbacks: dict[Callable[[], None], None] = {}
        self._behind_callbacks: dict[Callable[[], None], None] = {}
        self._decoding: LargeRequest | None = None
        self._active_ms = 0.0
        self._reading = True
        self._working = False
        self._sending_soon = False
        self.is_lost = False
        self.closed_by_peer = False

    def __repr__(self) -> str:
        return f"ServerConnection({self.id}, {self.listener}, {self.peer_host}:{self.peer_port})"

    # --- calls of handlers -------------------------------------------------------------------

    def add_close_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` once when the connection has ended; at once if it already has."""
        if self.is_lost:
            fn()
        else:
            self._close_callbacks[fn] = None

    def remove_close_callback(self, fn: Callable[[], None]) -> None:
        """Do not call `fn` when the connection ends; an unknown callback is ignored."""
        self._close_callbacks.pop(fn, None)

    def add_behind_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` whenever a reply is ready and an earlier request's reply is not."""
        if not self.is_lost:
            self._behind_callbacks[fn] = None

    def remove_behind_callback(self, fn: Callable[[], None]) -> None:
        """Do not call `fn` any more; an unknown callback is ignored."""
        self._behind_callbacks.pop(fn, None)

    def reply_is_behind(self) -> None:
        """Run the callbacks: a reply is ready and must wait for an earlier request's reply."""
        for fn in list(self._behind_callbacks):
            fn()

    def close(self, reason: str) -> None:
        """Close after the bytes written so far, drop pending replies, and log the reason."""
        if not self.is_closing:
            self._listener.log.closing(self, reason)
            self._shut()

    def mute(self, wait_ms: float) -> None:
        """Read no further request for `wait_ms`: the client exceeds a quota."""
        if wait_ms > 0.0:
            self.exchange.mute()
            asyncio.get_running_loop().call_later(wait_ms / 1000.0, self._unmute)
            self._set_reading()

    def hold_until(self, done: asyncio.Future[Any]) -> None:
        """Serve no further request before `done` ends: the current one is served in parts."""
        self.exchange.mute()
        done.add_done_callback(lambda _: self._unmute())
        self._set_reading()

    def _unmute(self) -> None:
        self.exchange.unmute()
        self._continue()

    def keep(self, size_bytes: int, until: asyncio.Future[Any]) -> None:
        """Count bytes of a request as request memory until `until` ends.

        A handler keeps these bytes, even if the connection ends earlier.
        """
        memory = self._listener.memory
        memory.charge(size_bytes)
        until.add_done_callback(lambda _: memory.give_back(size_bytes))

    # --- the transport's calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self._active_ms = self._listener.clock.monotonic_ms()
        refusal = self._listener.admit(self)
        if refusal is not None:
            self._listener.log.closing(self, refusal)
            self.exchange.hold(CLOSED)
            self._transport.abort()
            return
        if self._listener.for_nodes:
            notice_when_gone(transport)
        high = self._listener.limits.write_high_bytes
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        if self.exchange.holds & NOT_ADMITTED:
            # uvloop begins to read after this call, even if reading was paused in it.
            asyncio.get_running_loop().call_soon(self._set_reading)

    def begin(self) -> None:
        """Begin to serve the connection, which was admitted."""
        self.exchange.release(NOT_ADMITTED)
        self._listener.admitted()
        self._continue()

    def connection_lost(self, exc: Exception | None) -> None:
        listener = self._listener
        self.closed_by_peer = not self.is_closing
        self.is_lost = True
        self.exchange.hold(CLOSED)
        if listener.crowded and listener.turns.is_over(listener.clock.monotonic_ms()):
            listener.turns.wait(self._end)
        else:
            self._end()

    def _end(self) -> None:
        """Release the resources of the connection and run its close callbacks."""
        exchange = self.exchange
        if (large := self._decoding) is not None:
            self._decoding = None
            self._listener.decode_queue.remove(large)
            large.let_go()
        self._listener.forget(self, admitted=not exchange.holds & NOT_ADMITTED)
        exchange.end(self, self._active_ms)
        callbacks = list(self._close_callbacks)
        self._close_callbacks.clear()
        self._behind_callbacks.clear()
        for fn in callbacks:
            fn()

    def pause_writing(self) -> None:
        self.exchange.hold(WRITE_PAUSED)
        self._set_reading()

    def resume_writing(self) -> None:
        self.exchange.release(WRITE_PAUSED)
        self._continue()

    def get_buffer(self, sizehint: int) -> memoryview:
        exchange = self.exchange
        return exchange.buffer.room(exchange.holds & NOT_ADMITTED)

    def buffer_updated(self, nbytes: int) -> None:
        listener = self._listener
        listener.connection_stats.bytes_in += nbytes
        self.exchange.buffer.received(nbytes)
        self._active_ms = now_ms = listener.clock.monotonic_ms()
        self._work(now_ms, now_ms)

    # --- requests ------------------------------------------------------------------------------

    def _work(self, received_ms: float, now_ms: float) -> None:  # noqa: C901 - calls cost
        """Serve the complete requests in the buffer until a hold is set."""
        if self._working:
            return
        self._working = True
        exchange, listener = self.exchange, self._listener
        flow = listener.flow
        if listener.crowded and listener.turns.is_over(now_ms) and not exchange.holds & TURN_OVER:
            exchange.hold(TURN_OVER)
            listener.turns.wait(self._next_turn)
        flow.moment_ms = now_ms
        ends_ms = now_ms + SLICE_MS
        try:
            for frame in exchange.requests():
                flow.serve(self, frame, received_ms)
                if exchange.out_bytes > REPLIES_TOGETHER_BYTES:
                    self._send()
                if flow.moment_ms > ends_ms and exchange.buffer.end > exchange.buffer.start:
                    self._end_turn()
        except ProtocolError as error:
            self.close(str(error))
        self._working = False
        if self.repeated is not None:
            self.repeated.let_go()
        if exchange.out and not self._sending_soon:
            self._send()
        if exchange.end_turn(self, now_ms):
            asyncio.get_running_loop().call_soon(self._next_turn)
        if exchange.readable is not self._reading:
            self._set_reading()

    def _end_turn(self) -> None:
        """Leave the other requests in the buffer for a later event-loop iteration."""
        if not self.exchange.holds & TURN_OVER:
            self.exchange.hold(TURN_OVER)
            self._listener.overran(self._next_turn)

    def decode_later(self, request: LargeRequest) -> None:
        """Decode a request in later iterations, and serve no other before it."""
        self._decoding = request
        self.exchange.hold(DECODING)
        self._listener.decode_queue.add(request)

    def free(self, decoding: Decoding[Any]) -> None:
        """Free the decoded objects in later iterations."""
        self._listener.decode_queue.free(decoding)

    def serve_decoded(self, request: LargeRequest, error: ProtocolError | None) -> None:
        """Serve a large request once it is decoded; close the connection if it is unreadable."""
        self._decoding = None
        exchange = self.exchange
        if error is not None or exchange.holds & CLOSED:
            request.let_go()
            self.close(str(error))
            return
        self._working = True
        self._listener.flow.serve_decoded(request, self._listener.clock.monotonic_ms())
        self._working = False
        exchange.release(DECODING)
        if exchange.out and not self._sending_soon:
            self._send()
        if exchange.holds & DRAINING and not exchange.waiting:
            self._shut()
        else:
            self._continue()

    def _next_turn(self) -> None:
        self.exchange.release(TURN_OVER)
        self._continue(self._active_ms)

    def _continue(self, received_ms: float = -1.0) -> None:
        """Go on after a hold: serve the requests in the buffer, then read more."""
        exchange = self.exchange
        if exchange.holds:
            return
        if exchange.buffer.end:
            now_ms = self._listener.clock.monotonic_ms()
            self._work(now_ms if received_ms < 0.0 else received_ms, now_ms)
        elif not self._reading:
            self._set_reading()

    def _set_reading(self) -> None:
        exchange = self.exchange
        reading = exchange.readable
        if reading is not self._reading and not exchange.holds & CLOSED:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def feed(self) -> None:
        """Retry buffering the frame in progress after request memory was released."""
        self.exchange.feed(self, self._listener.clock.monotonic_ms())
        self._set_reading()

    def give_memory_back(self) -> None:
        """Shrink the receive buffer; the listener's scan calls this for quiet connections."""
        self.exchange.buffer.shrink()

    # --- replies -------------------------------------------------------------------------------

    def send_ready(self) -> None:
        """Send the replies that are ready and not behind a pending one.

        An event may complete the replies of many connections at once; on a crowded listener they
        are written in several event-loop iterations.
        """
        exchange, listener = self.exchange, self._listener
        if listener.crowded and listener.turns.is_over(listener.clock.monotonic_ms()):
            listener.turns.wait(self.send_ready)
            return
        flow = listener.flow
        while (later := exchange.next_ready()) is not None:
            if later.parts and not exchange.holds & CLOSED:
                flow.send(self, later)
                self._active_ms = flow.moment_ms
        if exchange.holds & DRAINING and not exchange.waiting and not exchange.holds & DECODING:
            self._shut()
        else:
            self._continue()

    def write(self, size_bytes: int, parts: list[Buffer]) -> None:
        """Write the next reply in order, with others, at the latest in this iteration."""
        exchange = self.exchange
        exchange.send(size_bytes, parts)
        if exchange.out_bytes > REPLIES_TOGETHER_BYTES:
            self._send()
        elif self._working:
            return
        elif not exchange.waiting:
            self._send()
        elif not self._sending_soon:
            # The event that completed this reply usually completes others in this iteration.
            self._sending_soon = True
            asyncio.get_running_loop().call_soon(self._send_soon)

    def _send_soon(self) -> None:
        self._sending_soon = False
        if self.exchange.out:
            self._send()

    def _send(self) -> None:
        exchange, listener = self.exchange, self._listener
        listener.connection_stats.bytes_out += exchange.out_bytes
        if listener.crowded:
            listener.turns.sent(exchange.out_bytes)
        parts = exchange.take()
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    # --- the end -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Stop reading, and close once the pending replies have been sent."""
        exchange = self.exchange
        if exchange.holds & (CLOSED | DRAINING):
            return
        exchange.hold(DRAINING)
        if exchange.waiting or exchange.holds & DECODING:
            self._set_reading()
        else:
            self._shut()

    def abort(self) -> None:
        """Close at once and drop unsent bytes."""
        self.exchange.hold(CLOSED)
        self.exchange.take()
        self._transport.abort()

    def quiet_ms(self, now_ms: float) -> float:
        """Return the time since this client last sent bytes or had a pending request, in ms.

        A client that does not read its replies is quiet, too.
        """
        return 0.0 if self.exchange.is_busy else now_ms - self._active_ms

    @property
    def is_closing(self) -> bool:
        """True if this side closes the connection, or it has ended."""
        return bool(self.exchange.holds & CLOSED)

    @property
    def inflight(self) -> int:
        """Number of requests without a sent reply."""
        return len(self.exchange.waiting)

    def _shut(self) -> None:
        self.exchange.hold(CLOSED)
        if self.exchange.out:
            self._send()
        self._transport.close()
