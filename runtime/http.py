"""Shell: A small HTTP server for health and metrics: GET and HEAD on fixed paths.

HTTP is h11's business; this file moves bytes and owns the limits. One response at a time per
connection, keep-alive allowed, idle connections closed, everything else answered 404 or 405. A
handler returns the whole body or an async iterator of pieces, so that a large scrape is written in
slices between which the loop does other work; a slow reader is waited for, not buffered for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

import h11

from runtime.listening import cannot_listen
from runtime.log import get_logger
from runtime.tasks import Supervisor

log = get_logger(__name__)

REQUEST_BYTES_MAX = 16 * 1024
IDLE_MS_MAX = 60_000
CONNECTIONS_MAX = 64


class Response(NamedTuple):
    status: int
    content_type: str
    body: bytes | AsyncIterator[bytes]


class Question(NamedTuple):
    """What a handler may want to know of a request."""

    accept: str


Handler: TypeAlias = Callable[[Question], Response]


def text_response(status: int, text: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", text.encode())


class HttpServer:
    """Serves `routes` (path -> handler). Raises OSError from `start` when it cannot bind."""

    def __init__(self, routes: Mapping[str, Handler], supervisor: Supervisor) -> None:
        self.routes = dict(routes)
        self.supervisor = supervisor
        self.connections: dict[_HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address bound."""
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
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None


class _HttpConnection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._answering = False
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports are no subclasses.
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._server.connections[self] = None
        self._arm_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._transport = None
        self._writable.set()
        if self._idle is not None:
            self._idle.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._arm_idle()
        try:
            self._h11.receive_data(data)
            self._advance()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def eof_received(self) -> bool:
        try:
            self._h11.receive_data(b"")
        except h11.RemoteProtocolError:
            return False
        return self._answering

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _arm_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_MS_MAX / 1000.0, self.abort)

    def _advance(self) -> None:
        """Take events until a request is whole, then answer it; one at a time."""
        while not self._answering:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.EndOfMessage):
                self._answering = True
                self._server.supervisor.spawn("http", self._answer(self._request), fatal=False)
            elif isinstance(event, h11.ConnectionClosed):
                self.abort()
                return
            elif event in (h11.NEED_DATA, h11.PAUSED):
                return

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self._transport is not None and self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = self._h11.send(
                h11.Response(
                    status_code=error.error_status_hint,
                    headers=[("Content-Length", "0"), ("Connection", "close")],
                )
            )
            self._transport.write(reply or b"")
        if self._transport is not None:
            self._transport.close()

    async def _answer(self, request: h11.Request) -> None:
        try:
            response = self._respond(request)
            await self._send(request.method == b"HEAD", response)
        except h11.LocalProtocolError:
            self.abort()
            return
        finally:
            self._answering = False
        self._next_request()

    def _next_request(self) -> None:
        if self._transport is None:
            return
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self._transport.close()
            return
        self._h11.start_next_cycle()
        try:
            self._advance()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _respond(self, request: h11.Request) -> Response:
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        handler = self._server.routes.get(path)
        if handler is None:
            return text_response(404, "not found\n")
        if request.method not in (b"GET", b"HEAD"):
            return text_response(405, "only GET and HEAD\n")
        try:
            # h11 gives names in small letters; several lines of one name are one list.
            accept = b",".join(value for name, value in request.headers if name == b"accept")
            return handler(Question(accept.decode("ascii", "replace")))
        except Exception as error:
            log.exception("HTTP handler failed", path=path, error=str(error))
            return text_response(500, "internal error\n")

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
            await self._send_pieces(head_only, response.body)
        self._write(self._h11.send(h11.EndOfMessage()))

    async def _send_pieces(self, head_only: bool, pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            if self._transport is None:
                return
            if not head_only:
                self._write(self._h11.send(h11.Data(data=piece)))
            self._arm_idle()
            await asyncio.sleep(0)
            await self._writable.wait()

    def _write(self, data: bytes | None) -> None:
        if self._transport is not None and data:
            self._transport.write(data)
