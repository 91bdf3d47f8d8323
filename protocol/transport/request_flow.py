"""The way of one request: frame, message, stages, handler, reply, bytes.

One `RequestFlow` serves all connections of a listener; what belongs to one connection is kept
there. A plain request is answered before `serve` returns, and no task, queue or future is made for
it. Of a reply that comes later the place in the order is kept, and here is the only place where a
coroutine of a handler becomes a task. What cannot be parsed closes the connection without an
answer, as Kafka does.

Nothing here knows a socket or the loop.
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
    """A reply that waits, or is ready behind one that does. The times are those of `stats.py`."""

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
    """A request that is decoded in steps, and what it holds until it is answered."""

    __slots__ = ("_charged_bytes", "decoding", "entry", "frame", "peer", "received_ms")

    decoding: Decoding[Any]
    frame: memoryview

    def __init__(self, peer: Served, entry: Entry, received_ms: float) -> None:
        self.peer = peer
        self.entry = entry
        self.received_ms = received_ms
        self._charged_bytes = 0

    def decode(self, frame: memoryview, version: int, offset: int) -> None:
        """Begin to decode the frame that was cut last. It stays in the connection's own buffer, or
        is copied out of the one that all share. Its bytes count as request memory until `let_go`.
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
        """The request is answered, or will not be."""
        memory = self.peer.exchange.buffer.memory
        memory.give_back(self._charged_bytes)
        self._charged_bytes = 0
        self.peer.free(self.decoding)

    def decoded(self, error: ProtocolError | None) -> None:
        """The message is whole, or cannot be read."""
        self.peer.serve_decoded(self, error)


class Served(Connection, Protocol):
    """A connection whose requests are served."""

    exchange: Exchange[LaterReply]
    is_lost: bool
    repeated: RepeatedProduce | None
    """The produce request that others are compared with."""
    unlike: int
    """How many produce requests were decoded."""

    def free(self, decoding: Decoding[Any]) -> None:
        """Free what was decoded, in iterations to come."""

    def decode_later(self, request: LargeRequest) -> None:
        """Decode a request in iterations to come, and serve no other before it."""

    def serve_decoded(self, request: LargeRequest, error: ProtocolError | None) -> None:
        """A request that was decoded later is whole, or cannot be read."""

    def write(self, size_bytes: int, parts: list[Buffer]) -> None:
        """A reply whose turn it is."""

    def send_ready(self) -> None:
        """A reply that waited is ready."""

    def reply_is_behind(self) -> None:
        """A reply is ready and waits for an earlier request's."""


class RequestFlow:
    """See the module."""

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
        """A handler's broken invariant goes to `supervisor`, which stops the node."""
        self._handlers = handlers
        self._clock = clock
        self._supervisor = supervisor
        self._listener = listener
        self._principal = principal
        self._log = log
        self.moment_ms = 0.0
        """When the last request of this turn of the loop was left: the next one's beginning."""

    # --- requests ------------------------------------------------------------------------------

    def serve(  # noqa: C901, PLR0912 - calls cost
        self,
        peer: Served,
        frame: memoryview,
        received_ms: float,
        large: LargeRequest | None = None,
    ) -> asyncio.Future[Body] | None:
        """Serve the next request of a connection, or a `large` one that is decoded; its errors are
        answered, or close the connection. Returns: the reply's future, if the reply waits."""
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
        """The client id and the message; None of a frame that takes longer. A produce request may
        become the one that those to come are compared with. ProtocolError."""
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
        """Keep the frame, hold the connection, and decode in iterations to come. ProtocolError."""
        peer.client_id, offset = decode_client_id(frame, version >= entry.first_flexible)
        request = LargeRequest(peer, entry, received_ms)
        request.decode(frame, version, offset)
        peer.decode_later(request)

    def serve_decoded(self, request: LargeRequest, now_ms: float) -> None:
        """Handle a request that was decoded later; it holds memory until it is answered."""
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
        """Send a reply that did not wait, if there is any, or put it behind those that do."""
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
        """Tell a client that asked for ApiVersions in a version from the future what there is."""
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
        """Keep the reply's place in the order until its promise is kept, and count the copy of its
        request that a coroutine holds until then."""
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
        """A reply that does not wait itself, but perhaps for others."""
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
            peer.close(f"{later.entry.api.name} was given up")
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
        """The answer to a handler that raised; None when the connection was closed instead."""
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
        """A handler raised what it may not raise. A broken invariant stops the node."""
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
        """The frame of a reply, with its bytes and errors counted; None where there is none."""
        if body is None or peer.exchange.holds & CLOSED:
            return None
        try:
            encoded = reply_parts(body, entry, version, correlation_id)
        except Exception as error:  # noqa: BLE001 - or this connection would wait for ever
            self._survive(peer, entry.api.name, error)
            peer.close("a response could not be encoded")
            return None
        stats.bytes_out += encoded[0]
        if isinstance(body, ApiMessage):
            entry.count_errors(body, stats.add_error)
        return encoded

    def send(self, peer: Served, later: LaterReply) -> None:
        """Send a reply that is ready and whose turn it is, and count it."""
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
