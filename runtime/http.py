"""Shell: A small HTTP server for health and metrics: GET and HEAD on fixed paths.

h11 parses and frames HTTP; this module moves bytes and owns the limits. A connection has one
response at a time, and while it is written the socket is not read: a client that pipelines and does
not read fills its own buffers. A handler returns the whole body or an async generator of pieces, so
that the loop does other work between the pieces of a large scrape.

Any client may open connections, so none may keep a health check out:

- a request must be complete `request_ms` after its first byte, the first one after the connect;
- a client must read a response within `answer_ms`;
- a new connection replaces the one that has been without progress for the longest time;
- at most `scrapes_max` responses are sent in pieces; other connections are for health checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple, TypeAlias, cast

import h11

from runtime.listening import cannot_listen
from runtime.tasks import Supervisor

REQUEST_BYTES_MAX = 16 * 1024


class HttpLimits(NamedTuple):
    """Timeouts and limits shared by the clients of one listener."""

    request_ms: int = 10_000
    answer_ms: int = 60_000
    idle_ms: int = 60_000
    """Maximum time between the requests of one connection."""
    connections_max: int = 64
    scrapes_max: int = 48
    """Maximum connections that receive an answer in pieces at the same time."""


LIMITS = HttpLimits()


class Response(NamedTuple):
    status: int
    content_type: str
    body: bytes | AsyncGenerator[bytes, None]


class Question(NamedTuple):
    """The parts of a request that handlers use."""

    accept: str


Handler: TypeAlias = Callable[[Question], Response]


def text_response(status: int, text: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", text.encode())


class HttpServer:
    """HTTP server of `routes` (path -> handler) on one address."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        supervisor: Supervisor,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self.routes = dict(routes)
        self.supervisor = supervisor
        self.limits = limits
        self.scrapes = 0
        """The number of answers in pieces that are being sent."""
        self._connections: dict[_HttpConnection, None] = {}
        """Connections in the order in which their current states began."""
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen and return the bound address. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _HttpConnection(self), host or None, port
            )
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return str(bound_host), int(bound_port)

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    def admit(self, connection: _HttpConnection) -> None:
        """Accept a connection; at the limit, abort another one for it."""
        if len(self._connections) >= self.limits.connections_max:
            # A short answer does not protect its connection: a client that does not read it must
            # not block a health check.
            lost = next((one for one in self._connections if not one.scraping), connection)
            self.forget(lost)
            lost.abort()
            if lost is connection:
                return
        self._connections[connection] = None

    def moved_on(self, connection: _HttpConnection) -> None:
        """Move a connection whose state has changed to the end of the order."""
        if connection in self._connections:
            self._connections[connection] = self._connections.pop(connection)

    def forget(self, connection: _HttpConnection) -> None:
        """Remove a connection from the count."""
        self._connections.pop(connection, None)


class _HttpConnection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._mid_request = True
        """A request has begun; true for a new connection, too."""
        self.answering = False
        self.scraping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance check: uvloop's transports are not subclasses.
        self._transport = cast(asyncio.Transport, transport)
        self._enter(self._server.limits.request_ms)
        self._server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._transport = None
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if not self._mid_request and not self.answering:
            self._mid_request = True
            self._enter(self._server.limits.request_ms)
        try:
            self._h11.receive_data(data)
            self._advance()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)

    def eof_received(self) -> bool:
        try:
            self._h11.receive_data(b"")
        except h11.RemoteProtocolError:
            return False
        return self.answering

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _enter(self, limit_ms: int) -> None:
        """Enter a state that may last at most `limit_ms`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(limit_ms / 1000.0, self.abort)
        self._server.moved_on(self)

    def _advance(self) -> None:
        """Handle events until a request is complete, then answer it."""
        while not self.answering:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                # No path accepts a body, and reading one could take indefinitely.
                self._refuse(413)
                return
            elif isinstance(event, h11.EndOfMessage):
                self._begin_answer()
            elif isinstance(event, h11.ConnectionClosed):
                self.abort()
                return
            elif event in (h11.NEED_DATA, h11.PAUSED):
                return

    def _begin_answer(self) -> None:
        assert self._transport is not None and self._request is not None
        self.answering = True
        self._transport.pause_reading()
        self._enter(self._server.limits.answer_ms)
        self._server.supervisor.spawn("http", self._answer(self._request), fatal=False)

    def _refuse(self, status: int) -> None:
        if self._transport is not None and self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = self._h11.send(
                h11.Response(
                    status_code=status,
                    headers=[("Content-Length", "0"), ("Connection", "close")],
                )
            )
            self._transport.write(reply or b"")
        if self._transport is not None:
            self._transport.close()

    async def _answer(self, request: h11.Request) -> None:
        try:
            # A client that has not read its last answer must read it before the next one.
            await self._writable.wait()
            await self._send(request.method == b"HEAD", self._respond(request))
        except h11.LocalProtocolError:
            self.abort()
        except Exception as error:  # noqa: BLE001 - ends this connection only
            self._server.supervisor.survive("HTTP request", error)
            self.abort()
        else:
            self.answering = False
            self._next_request()

    def _next_request(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self._transport.close()
            return
        self._h11.start_next_cycle()
        pipelined, _ = self._h11.trailing_data
        self._mid_request = bool(pipelined)
        limits = self._server.limits
        self._enter(limits.request_ms if self._mid_request else limits.idle_ms)
        try:
            self._advance()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)
        if not self.answering and not self._transport.is_closing():
            self._transport.resume_reading()

    def _respond(self, request: h11.Request) -> Response:
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        handler = self._server.routes.get(path)
        if handler is None:
            return text_response(404, "not found\n")
        if request.method not in (b"GET", b"HEAD"):
            return text_response(405, "only GET and HEAD\n")
        try:
            # h11 lower-cases names; several headers of one name form a list.
            accept = b",".join(value for name, value in request.headers if name == b"accept")
            response = handler(Question(accept.decode("ascii", "replace")))
        except Exception as error:  # noqa: BLE001 - ends this request only
            self._server.supervisor.survive("HTTP request", error, path=path)
            return text_response(500, "internal error\n")
        limits = self._server.limits
        if not isinstance(response.body, bytes) and self._server.scrapes >= limits.scrapes_max:
            return text_response(
                503, f"limit of {limits.scrapes_max} concurrent scrapes reached; retry\n"
            )
        return response

    async def _send(self, head_only: bool, response: Response) -> None:
        headers = [("Content-Type", response.content_type)]
        if isinstance(response.body, bytes):
            headers.append(("Content-Length", str(len(response.body))))
        elif self._h11.their_http_version == b"1.0":
            headers.append(("Connection", "close"))
        self._write(self._h11.send(h11.Response(status_code=response.status, headers=headers)))
        if isinstance(response.body, bytes):
            if not head_only:
                self._write(self._h11.send(h11.Data(data=response.body)))
        else:
            self.scraping = True
            self._server.scrapes += 1
            try:
                await self._send_pieces(head_only, response.body)
            finally:
                self.scraping = False
                self._server.scrapes -= 1
        self._write(self._h11.send(h11.EndOfMessage()))

    async def _send_pieces(self, head_only: bool, pieces: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(pieces):
            async for piece in pieces:
                if self._transport is None:
                    return
                if not head_only:
                    self._write(self._h11.send(h11.Data(data=piece)))
                await asyncio.sleep(0)
                await self._writable.wait()

    def _write(self, data: bytes | None) -> None:
        if self._transport is not None and data:
            self._transport.write(data)
