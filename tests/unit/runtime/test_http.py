import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop

from runtime.http import HttpServer, Response, text_response
from runtime.tasks import Supervisor


async def many() -> AsyncIterator[bytes]:
    for number in range(3):
        yield b"piece %d\n" % number


def broken(_: object) -> Response:
    raise ValueError("boom")


@pytest.fixture
async def address():
    supervisor = Supervisor()
    server = HttpServer(
        {
            "/healthz": lambda _: text_response(200, "ok\n"),
            "/metrics": lambda _: Response(200, "text/plain", many()),
            "/broken": broken,
        },
        supervisor,
    )
    yield await server.start("127.0.0.1", 0)
    await server.close()
    await supervisor.close()


async def exchange(address: tuple[str, int], data: bytes) -> bytes:
    """Send everything, read until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    received = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return received


def request(path: str, method: str = "GET", close: bool = True) -> bytes:
    connection = "Connection: close\r\n" if close else ""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{connection}\r\n".encode()


def test_under_uvloop():
    async def scenario() -> bytes:
        supervisor = Supervisor()
        server = HttpServer({"/x": lambda _: Response(200, "text/plain", many())}, supervisor)
        reply = await exchange(await server.start("127.0.0.1", 0), request("/x"))
        await server.close()
        await supervisor.close()
        return reply

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert b"piece 2\n" in runner.run(scenario())


async def test_fixed_body(address):
    reply = await exchange(address, request("/healthz?verbose=1"))
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.endswith(b"\r\n\r\nok\n")


async def test_pieces_are_chunked(address):
    reply = await exchange(address, request("/metrics"))
    assert b"Transfer-Encoding: chunked" in reply
    assert b"piece 2\n" in reply


async def test_an_old_client_gets_pieces_until_close(address):
    reply = await exchange(address, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert reply.endswith(b"\r\n\r\npiece 0\npiece 1\npiece 2\n")


async def test_pipelined_requests_are_answered_in_order(address):
    reply = await exchange(address, request("/healthz", close=False) + request("/metrics"))
    assert reply.count(b"HTTP/1.1 200") == 2
    assert reply.index(b"ok\n") < reply.index(b"piece 0")


async def test_head_has_no_body(address):
    reply = await exchange(address, request("/healthz", "HEAD"))
    assert b"Content-Length: 3" in reply
    assert reply.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("/nothing"), b"404"),
        (request("/healthz", "POST"), b"405"),
        (request("/broken"), b"500"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n", b"431"),
    ],
)
async def test_refusals(address, data, status):
    reply = await exchange(address, data)
    assert reply.split(b" ", 2)[1] == status
