"""Processing of one request: frame, message, stages, handler, reply, bytes.

One `RequestFlow` serves all connections of a listener; each connection has its own state. `serve`
completes a plain request before it returns, without a task, queue or future. A later reply has a
place in the order. Only this module turns a handler's coroutine into a task. An unreadable request
closes the connection without a response, as in Kafka.

This module uses no socket and no event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol

from protocol.api_keys import ApiKey
from protocol.codec import decode_small
from protocol.decoding import WHOLE_BYTES, Decoding, decode_at_once
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.headers import decode_client_id
from protocol.messages.produce import ProduceRequest
from protocol.schema import ApiMessage, Buffer
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    Connection,
    EncodedReply,
    Entry,
    FramedReply,
    HandlerTable,
    Passage,
    RequestContext,
    error_reply,
    leave,
    pass_through,
    peek,
    reply_parts,
)
from protocol.transport.exchange import CLOSED, Exchange, Place
from protocol.transport.listener_log import ListenerLog
from protocol.transport.repeated import LEARN_EVERY, RepeatedProduce, learn
from protocol.transport.stats import ApiStats
from runtime.clock import Clock
from runtime.tasks import Supervisor

if TYPE_CHECKING:
    import asyncio

PRODUCE = int(ApiKey.PRODUCE)


class LaterReply(Place):
    """A pending reply, or a ready one behind a pending one. Its times are those of `stats.py`."""

    __slots__ = (
        "correlation_id",
        "entry",
        "handled_ms",
        "passages",
        "ready_ms",
        "received_ms",
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
        self.ready = False
        self.size = 0
        self.parts = []
        self.entry = entry
        self.stats = stats
        self.version = version
        self.correlation_id = correlation_id
        self.received_ms, self.started_ms, self.handled_ms = times_ms
        self.ready_ms = self.handled_ms
        self.passages: Sequence[Passage] = ()


class LargeRequest:
    """A request that is decoded in steps, with the memory that it holds until its reply."""

    __slots__ = ("_charged_bytes", "decoding", "entry", "frame", "peer", "received_ms")

    decoding: Decoding[Any]
    frame: memoryview

    def __init__(self, peer: Served, entry: Entry, received_ms: float) -> None:
        self.peer = peer
        self.entry = entry
        self.received_ms = received_ms
        self._charged_bytes = 0

    def decode(self, frame: memoryview, version: int, offset: int) -> None:
        """Begin to decode the last frame.

        The frame stays in the connection's own buffer, or is copied from the shared one. Its bytes
        count as request memory until `let_go`.
        """
        buffer = self.peer.exchange.buffer
        self._charged_bytes = buffer.detach()
        if not self._charged_bytes:
            self._charged_bytes = len(frame)
            buffer.memory.charge(self._charged_bytes)
            frame = memoryview(bytes(frame))
        self.frame = frame
        allowance = buffer.memory.allowance
        self.decoding = Decoding(self.entry.request, frame, version, offset, allowance)

    def let_go(self) -> None:
        """Release the memory: the request was answered, or will not be."""
        memory = self.peer.exchange.buffer.memory
        memory.give_back(self._charged_bytes)
        self._charged_bytes = 0
        self.peer.free(self.decoding)

    def decoded(self, error: ProtocolError | None) -> None:
        """Serve the decoded message; with `error` it is unreadable."""
        self.peer.serve_decoded(self, error)


class Served(Connection, Protocol):
    """A connection whose requests are served."""

    exchange: Exchange[LaterReply]
    is_lost: bool
    repeated: RepeatedProduce | None
    """The Produce request that later ones are compared with."""
    unlike: int
    """Number of Produce requests that were decoded."""

    def free(self, decoding: Decoding[Any]) -> None:
        """Free the decoded objects in later iterations."""

    def decode_later(self, request: LargeRequest) -> None:
        """Decode a request in later iterations, and serve no other before it."""

    def serve_decoded(self, request: LargeRequest, error: ProtocolError | None) -> None:
        """Serve a large request once it is decoded; close the connection if it is unreadable."""

    def write(self, size_bytes: int, parts: list[Buffer]) -> None:
        """Write the next reply in order."""

    def send_ready(self) -> None:
        """Send the replies that are ready and not behind a pending one."""

    def reply_is_behind(self) -> None:
        """Run the callbacks: a reply is ready and must wait for an earlier request's reply."""


class RequestFlow:
    """Serves the requests of one listener's connections."""

    def __init__(
        self,
        handlers: HandlerTable,
        *,
        clock: Clock,
        supervisor: Supervisor,
        listener: str,
        principal: str,
        log: ListenerLog,
    ) -> None:
        """Create the flow of one listener.

        Args:
            supervisor: receives a handler's broken invariant and stops the node.
        """
        self._handlers = handlers
        self._clock = clock
        self._supervisor = supervisor
        self._listener = listener
        self._principal = principal
        self._log = log
        self.moment_ms = 0.0
        """Monotonic time at which the last request ended in this iteration: the next one's start.
        """

    # --- requests ------------------------------------------------------------------------------

    def serve(  # noqa: C901, PLR0912 - calls cost
        self,
        peer: Served,
        frame: memoryview,
        received_ms: float,
        large: LargeRequest | None = None,
    ) -> asyncio.Future[Body] | None:
        """Serve the next request of a connection, or a `large` one that was decoded.

        An error becomes a response or closes the connection.

        Returns: the future of the reply if it comes later, else None.
        """
        started_ms = self.moment_ms
        table = self._handlers
        try:
            api_key, version, correlation_id = peek(frame)
            repeated = peer.repeated
            if large is not None:
                entry, message = large.entry, large.decoding.message
            elif (
                repeated is not None
                and api_key == PRODUCE
                and version == repeated.version
                and repeated.take(frame)
            ):
                entry, message = repeated.entry, repeated.message
                peer.client_id = repeated.client_id
            else:
                found = table.find(api_key, version, peer)
                if found is None:
                    times = received_ms, started_ms, started_ms
                    self._answer_unknown(peer, correlation_id, times)
                    return None
                entry = found
                message = self._decode(peer, entry, version, frame)
                if message is None:
                    self._decode_later(peer, entry, version, frame, received_ms)
                    return None
            kind_of = entry.kind_of
            stats = entry.stats if kind_of is None else entry.kinds[kind_of(message)]
            size = len(frame) + 4
            stats.requests[version] += 1
            stats.bytes_in += size
            context = RequestContext(
                peer, entry.api, version, correlation_id, peer.client_id, received_ms,
                self._principal, peer.peer_host, self._listener, size,
            )  # fmt: skip
        except (ProtocolError, CloseConnection) as error:
            peer.close(str(error))
            return None
        passages: Sequence[Passage] = ()
        try:
            if table.stages:
                reply, passages = pass_through(table.stages, entry, context, message)
            else:
                reply = entry.handler(context, message)
        except (ProtocolError, CloseConnection) as error:
            peer.close(str(error))
        except Exception as error:  # noqa: BLE001 - `_failure` logs it and answers
            times = received_ms, started_ms, self._clock.monotonic_ms()
            later = LaterReply(entry, stats, version, correlation_id, times)
            self._ready(peer, later, self._failure(peer, later, error))
        else:
            handled_ms = self.moment_ms = self._clock.monotonic_ms()
            times = received_ms, started_ms, handled_ms
            if reply is None or isinstance(reply, (ApiMessage, EncodedReply)):
                self._answer(peer, entry, stats, version, correlation_id, times, reply)
            else:
                later = LaterReply(entry, stats, version, correlation_id, times)
                later.passages = passages
                kept = len(frame) if entry.is_async and large is None else 0
                return self._wait(peer, later, reply, kept)
        return None

    def _decode(self, peer: Served, entry: Entry, version: int, frame: memoryview) -> Any:
        """Decode the client id and the message of a frame.

        A Produce request may become the one that later ones are compared with.

        Returns:
            None if the message takes too long to decode at once.

        Raises:
            ProtocolError: the frame is unreadable.
        """
        if entry.is_async:
            if len(frame) > WHOLE_BYTES:
                return None
            frame = memoryview(bytes(frame))
        peer.client_id, offset = decode_client_id(frame, version >= entry.first_flexible)
        if len(frame) > WHOLE_BYTES:
            decoded = decode_at_once(entry.request, frame, version, offset)
            if decoded is None:
                return None
            message, end = decoded
        else:
            message, end = decode_small(entry.request, frame, version, offset)
        if end != len(frame):
            self._log.trailing(peer, entry.api.name, len(frame) - end)
        elif isinstance(message, ProduceRequest) and not entry.is_async:
            unlike = peer.unlike
            peer.unlike = unlike + 1
            if unlike % LEARN_EVERY == 0:
                peer.repeated = learn(entry, version, peer.client_id, message, frame)
        return message

    # --- large requests ------------------------------------------------------------------------

    def _decode_later(
        self, peer: Served, entry: Entry, version: int, frame: memoryview, received_ms: float
    ) -> None:
        """Keep the frame, hold the connection, and decode in later iterations.

        Raises:
            ProtocolError: the header is unreadable.
        """
        peer.client_id, offset = decode_client_id(frame, version >= entry.first_flexible)
        request = LargeRequest(peer, entry, received_ms)
        request.decode(frame, version, offset)
        peer.decode_later(request)

    def serve_decoded(self, request: LargeRequest, now_ms: float) -> None:
        """Serve a large request that was decoded; it holds memory until its reply is ready."""
        self.moment_ms = now_ms
        if left := len(request.frame) - request.decoding.end:
            self._log.trailing(request.peer, request.entry.api.name, left)
        promise = self.serve(request.peer, request.frame, request.received_ms, request)
        if promise is None:
            request.let_go()
        else:
            promise.add_done_callback(lambda _: request.let_go())

    # --- replies -------------------------------------------------------------------------------

    def _answer(
        self,
        peer: Served,
        entry: Entry,
        stats: ApiStats,
        version: int,
        correlation_id: int,
        times_ms: tuple[float, float, float],
        body: Body,
    ) -> None:
        """Send an immediate reply, or enqueue it behind pending ones; None has no response."""
        received_ms, started_ms, handled_ms = times_ms
        now_ms = handled_ms
        if body is not None:
            exchange = peer.exchange
            if exchange.waiting or exchange.holds & CLOSED:
                later = LaterReply(entry, stats, version, correlation_id, times_ms)
                self._ready(peer, later, body)
                return
            if type(body) is FramedReply:
                size, parts = reply_parts(body, entry, version, correlation_id)
                stats.bytes_out += size
                exchange.send(size, parts)
            else:
                encoded = self._encode(peer, entry, stats, version, correlation_id, body)
                if encoded is not None:
                    exchange.send(*encoded)
            now_ms = self.moment_ms = self._clock.monotonic_ms()
        stats.answered(
            started_ms - received_ms,
            handled_ms - started_ms,
            now_ms - handled_ms,
            now_ms - received_ms,
        )

    def _answer_unknown(
        self, peer: Served, correlation_id: int, times_ms: tuple[float, float, float]
    ) -> None:
        """Send the supported range to a client that used an unknown version of ApiVersions."""
        table, exchange = self._handlers, peer.exchange
        encoded = reply_parts(table.unknown_api_versions(), None, 0, correlation_id)
        if exchange.waiting:
            entry = table.entries[ApiKey.API_VERSIONS]
            later = LaterReply(entry, entry.stats, 0, correlation_id, times_ms)
            later.ready = True
            later.size, later.parts = encoded
            exchange.enqueue(later)
        else:
            exchange.send(*encoded)

    def _wait(
        self, peer: Served, later: LaterReply, promise: Any, copied_bytes: int
    ) -> asyncio.Future[Body]:
        """Keep the reply's place in the order until its awaitable ends.

        Args:
            copied_bytes: size of the copied request that a coroutine holds until then.
        """
        if type(promise) is CoroutineType:
            name = f"{later.entry.api.name} of connection {peer.id}"
            promise = self._supervisor.spawn(name, promise, fatal=False)
        if promise.done():
            self._ready(peer, later, self._outcome(peer, later, promise))
            return promise  # type: ignore[no-any-return]  # a task or a future
        peer.exchange.enqueue(later)
        if copied_bytes:
            peer.keep(copied_bytes, promise)
        promise.add_done_callback(partial(self._settle, peer, later))
        return promise  # type: ignore[no-any-return]  # a task or a future

    def _settle(self, peer: Served, later: LaterReply, future: asyncio.Future[Body]) -> None:
        body = self._outcome(peer, later, future)
        if not peer.is_lost:
            later.ready_ms = self._clock.monotonic_ms()
            self._fill(peer, later, body)
            if peer.exchange.waiting and not peer.exchange.waiting[0].ready:
                peer.reply_is_behind()
            peer.send_ready()

    def _ready(self, peer: Served, later: LaterReply, body: Body) -> None:
        """Send a reply that is ready, or enqueue it behind pending ones."""
        exchange = peer.exchange
        if body is None or exchange.holds & CLOSED:
            return
        self._fill(peer, later, body)
        if exchange.waiting:
            exchange.enqueue(later)
            peer.reply_is_behind()
        else:
            self.send(peer, later)

    def _outcome(self, peer: Served, later: LaterReply, future: asyncio.Future[Body]) -> Body:
        if future.cancelled():
            peer.close(f"{later.entry.api.name} was cancelled")
            return None
        error = future.exception()
        if error is not None:
            return self._failure(peer, later, error)
        if not later.passages:
            return future.result()
        try:
            return leave(later.passages, future.result())
        except Exception as raised:  # noqa: BLE001 - `_failure` logs it and answers
            return self._failure(peer, later, raised)

    def _failure(self, peer: Served, later: LaterReply, error: BaseException) -> Body:
        """Return the response for a handler's error; None if the connection was closed instead."""
        name = later.entry.api.name
        if isinstance(error, (ProtocolError, CloseConnection)):
            peer.close(f"{name}: {error}")
            return None
        if not isinstance(error, ApiError):
            self._survive(peer, name, error)
            error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            return error_reply(later.entry, later.version, error)
        except CloseConnection as close:
            later.stats.add_error(error.code)
            peer.close(str(close))
            return None

    def _survive(self, peer: Served, name: str, error: BaseException) -> None:
        """Report an unexpected error of a handler; a broken invariant stops the node."""
        self._supervisor.survive(
            "request",
            error,
            api=name,
            client=peer.client_id,
            peer=f"{peer.peer_host}:{peer.peer_port}",
        )

    def _fill(self, peer: Served, later: LaterReply, body: Body) -> None:
        later.ready = True
        encoded = self._encode(
            peer, later.entry, later.stats, later.version, later.correlation_id, body
        )
        if encoded is not None:
            later.size, later.parts = encoded

    def _encode(
        self,
        peer: Served,
        entry: Entry,
        stats: ApiStats,
        version: int,
        correlation_id: int,
        body: Body,
    ) -> tuple[int, list[Buffer]] | None:
        """Encode a reply and count its bytes and errors; None without a body or connection."""
        if body is None or peer.exchange.holds & CLOSED:
            return None
        try:
            encoded = reply_parts(body, entry, version, correlation_id)
        except Exception as error:  # noqa: BLE001 - or the connection waits indefinitely
            self._survive(peer, entry.api.name, error)
            peer.close("a response could not be encoded")
            return None
        stats.bytes_out += encoded[0]
        if isinstance(body, ApiMessage):
            entry.count_errors(body, stats.add_error)
        return encoded

    def send(self, peer: Served, later: LaterReply) -> None:
        """Send and count the next reply in order."""
        stats = later.stats
        sending_ms = self._clock.monotonic_ms()
        peer.write(later.size, later.parts)
        sent_ms = self.moment_ms = self._clock.monotonic_ms()
        received_ms, started_ms, handled_ms = later.received_ms, later.started_ms, later.handled_ms
        stats.waited(later.ready_ms - handled_ms, sending_ms - later.ready_ms)
        stats.answered(
            started_ms - received_ms,
            handled_ms - started_ms,
            sent_ms - sending_ms,
            sent_ms - received_ms,
        )
