"""Helpers of the transport tests: real sockets on both event loops, raw frames, handlers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.messages import response_class
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import ApiMessage
from protocol.transport.admission import ConnectionGate
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.limits import ServerLimits
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import Clock, SystemClock

LIMIT_S = 20.0

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test once under asyncio's own loop and once under uvloop."""

    @functools.wraps(test)
    def run(loop_name: str, **arguments: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test(**arguments)

        with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
            runner.run(bounded())

    signature = inspect.signature(test)
    loop_parameter = inspect.Parameter("loop_name", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), loop_parameter]
    )
    del run.__wrapped__
    decorated: Callable[..., None] = pytest.mark.parametrize("loop_name", list(LOOPS))(run)
    return decorated


class Echo:
    """Handlers whose replies identify their request.

    Metadata responds at once with the client id of the request. Heartbeat responds when the test
    decides: `release(group)` completes the reply of the request with that group id.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.contexts: list[RequestContext] = []
        self.waiting: dict[str, asyncio.Future[ApiMessage | None]] = {}
        self.changed = asyncio.Event()

    def metadata(self, context: RequestContext, _: MetadataRequest) -> MetadataResponse:
        self.asked.append(f"metadata {context.correlation_id}")
        self.contexts.append(context)
        self.changed.set()
        return MetadataResponse(cluster_id=context.client_id)

    def heartbeat(
        self, context: RequestContext, request: HeartbeatRequest
    ) -> asyncio.Future[ApiMessage | None]:
        self.asked.append(request.group_id)
        self.contexts.append(context)
        future: asyncio.Future[ApiMessage | None] = asyncio.get_running_loop().create_future()
        self.waiting[request.group_id] = future
        self.changed.set()
        return future

    def release(self, group_id: str) -> None:
        future = self.waiting.pop(group_id)
        if not future.done():
            future.set_result(HeartbeatResponse(throttle_time_ms=len(group_id)))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.serve_api_versions()
        table.register(ApiKey.METADATA, self.metadata)
        table.register(ApiKey.HEARTBEAT, self.heartbeat)
        return table


@asynccontextmanager
async def serving(
    table: HandlerTable,
    *,
    gate: ConnectionGate | None = None,
    memory: RequestMemory | None = None,
    clock: Clock | None = None,
    port: int = 0,
    for_nodes: bool = False,
    **limits: Any,
) -> AsyncIterator[Server]:
    server = Server(
        table,
        clock=SystemClock() if clock is None else clock,
        listener="PLAINTEXT",
        limits=ServerLimits(**limits),
        gate=gate,
        memory=memory,
        for_nodes=for_nodes,
    )
    await server.start("127.0.0.1", port)
    try:
        yield server
    finally:
        await server.close(grace_ms=100.0)


class RawClient:
    """Raw bytes in and out, for input that no proper client would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def response(self) -> bytes:
        """Return the next frame without its length."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def greet(self) -> None:
        """Have a small request served: a connection may not begin with a large one."""
        self.writer.write(metadata(0))
        await self.response()

    async def closed(self) -> bytes:
        """Wait until the server has closed the connection. Returns: the bytes that it had sent
        before."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def raw_client(server: Server) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request_bytes(
    message: ApiMessage, version: int, correlation_id: int = 0, client_id: str | None = "test"
) -> bytes:
    header = RequestHeader(ApiKey(message.API_KEY), version, correlation_id, client_id)
    return framed(encode_request_header(header) + encode(message, version))


def metadata(correlation_id: int = 0, client_id: str | None = "test") -> bytes:
    return request_bytes(MetadataRequest(topics=[]), 12, correlation_id, client_id)


def heartbeat(group_id: str, correlation_id: int = 0) -> bytes:
    return request_bytes(HeartbeatRequest(group_id=group_id), 4, correlation_id)


def read_response(frame: bytes, api: ApiKey, version: int) -> tuple[int, Any]:
    correlation_id, offset = decode_response_header(frame, api, version)
    message, end = decode(response_class(api), frame, version, offset)
    assert end == len(frame)
    return correlation_id, message


def correlation_id_of(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame)[0])
