import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from runtime.http import HttpLimits, HttpServer, Response, text_response
from runtime.tasks import Supervisor
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network


async def many() -> AsyncGenerator[bytes, None]:
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
    """Send all bytes, then read until the server closes the connection."""
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


# --- clients that take more than their share ---------------------------------------------------


class Client(asyncio.Protocol):
    """A client whose socket the test controls."""

    def __init__(self) -> None:
        self.received = b""
        self.blocked = False
        self.closed_at: float | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed_at = asyncio.get_running_loop().time()

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    @property
    def statuses(self) -> list[str]:
        return [part[:3].decode() for part in self.received.split(b"HTTP/1.1 ")[1:]]


class Clients:
    """A server on virtual time, and clients of it."""

    def __init__(self, limits: HttpLimits) -> None:
        self.supervisor = Supervisor()
        self.produced = 0
        self.server = HttpServer(
            {
                "/healthz": lambda _: text_response(200, "ok\n"),
                "/large": lambda _: Response(200, "text/plain", self._large()),
            },
            self.supervisor,
            limits,
        )

    async def _large(self) -> AsyncGenerator[bytes, None]:
        for _ in range(100):
            self.produced += 1
            yield bytes(10_000)

    async def connect(self, data: bytes = b"", reading: bool = True) -> Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Client, *self.address)
        if not reading:
            client.transport.pause_reading()
        if data:
            client.write(data)
        return client

    async def status(self, path: str = "/healthz") -> list[str]:
        """Return the status lines of a new client's request after a second."""
        client = await self.connect(request(path))
        await asyncio.sleep(1)
        return client.statuses


def played(play: Callable[[Clients], Awaitable[None]], **limits: int) -> None:
    """Run a scenario with clients of one server on virtual time."""

    async def run() -> None:
        clients = Clients(HttpLimits(**limits))
        clients.address = await clients.server.start("server", 80)
        await play(clients)
        await clients.server.close()
        await clients.supervisor.close()

    loop = VirtualLoop(Network(random.Random(1)))
    try:
        loop.run_world(run())
    finally:
        loop.close()


def test_connection_request_incomplete_after_ten_seconds_is_closed():
    """B43: regression: each byte of a request renewed the timer, so a client could keep its
    place."""

    async def play(clients: Clients) -> None:
        silent = await clients.connect()
        slow = await clients.connect()
        for byte in request("/healthz")[:15]:
            slow.write(bytes([byte]))
            await asyncio.sleep(1)
        assert 10 <= silent.closed_at < 10.5
        assert 10 <= slow.closed_at < 10.5

    played(play)


def test_connection_second_request_incomplete_is_closed_ten_seconds_after_its_first_byte():
    async def play(clients: Clients) -> None:
        client = await clients.connect(request("/healthz", close=False))
        await asyncio.sleep(30)
        assert client.statuses == ["200"]
        for byte in b"GET /healthz":
            client.write(bytes([byte]))
            await asyncio.sleep(1)
        assert 40 <= client.closed_at < 40.5
        pipelined = await clients.connect(request("/healthz", close=False) + b"GET")
        await asyncio.sleep(15)
        assert 52 <= pipelined.closed_at < 52.5

    played(play)


def test_connection_idle_between_requests_is_closed_after_idle_time():
    async def play(clients: Clients) -> None:
        client = await clients.connect(request("/healthz", close=False))
        await asyncio.sleep(59)
        assert client.closed_at is None
        await asyncio.sleep(2)
        assert client.closed_at is not None

    played(play)


@pytest.mark.parametrize("data", [b"", b"G", request("/healthz", close=False)])
def test_health_check_is_answered_while_all_places_wait_for_requests(data):
    """B43, B44: connections without a complete request lose their places, the oldest first."""

    async def play(clients: Clients) -> None:
        crowd = [await clients.connect(data) for _ in range(200)]
        await asyncio.sleep(1)
        assert sum(one.closed_at is None for one in crowd) == 64
        assert all(one.closed_at is None for one in crowd[-64:])
        assert await clients.status() == ["200"]

    played(play)


def test_new_connection_takes_the_place_that_is_longest_without_progress():
    async def play(clients: Clients) -> None:
        first = await clients.connect()
        second = await clients.connect()
        await asyncio.sleep(1)
        first.write(request("/healthz", close=False))
        await asyncio.sleep(1)
        assert await clients.status() == ["200"]
        assert first.closed_at is None
        assert second.closed_at is not None

    played(play, connections_max=2)


@pytest.mark.parametrize("path", ["/large", "/healthz"])
def test_health_check_is_answered_while_answers_go_unread(path):
    """B45: answers in pieces have a smaller number of places; unread short ones lose theirs."""

    async def play(clients: Clients) -> None:
        unread = request(path, close=False) * 2000
        crowd = [await clients.connect(unread, reading=False) for _ in range(20)]
        await asyncio.sleep(1)
        assert clients.server.scrapes == (6 if path == "/large" else 0)
        assert await clients.status() == ["200"]
        assert len(clients.server._connections) <= 8
        assert sum(one.closed_at is None for one in crowd) <= 8

    played(play, connections_max=8, scrapes_max=6)


def test_scrape_above_its_places_is_refused_and_served_after_unread_ones_end():
    async def play(clients: Clients) -> None:
        for _ in range(3):
            await clients.connect(request("/large"), reading=False)
        assert await clients.status("/large") == ["503"]
        await asyncio.sleep(60)
        assert clients.server.scrapes == 0
        assert await clients.status("/large") == ["200"]

    played(play, scrapes_max=3)


@pytest.mark.parametrize("path", ["/large", "/healthz"])
def test_pipelined_requests_stay_with_a_client_that_does_not_read(path):
    """B45, B46: neither requests nor answers accumulate in the node: the client's writes block."""

    async def play(clients: Clients) -> None:
        client = await clients.connect(reading=False)
        sent = 0
        while not client.blocked and sent < 100_000:
            client.write(request(path, close=False) * 10)
            sent += 10
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert client.blocked
        assert sent < 10_000
        assert clients.produced < 20
        (connection,) = clients.server._connections
        assert connection._transport.get_write_buffer_size() < 100_000
        if path == "/healthz":
            client.transport.resume_reading()
            await asyncio.sleep(20)
            assert client.statuses == ["200"] * sent

    played(play)


def test_answer_unread_after_its_time_is_aborted():
    async def play(clients: Clients) -> None:
        client = await clients.connect(request("/large"), reading=False)
        await asyncio.sleep(59)
        assert client.closed_at is None
        await asyncio.sleep(2)
        assert client.closed_at is not None

    played(play)


def test_request_with_a_body_is_refused_before_the_body_is_read():
    async def play(clients: Clients) -> None:
        head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
        client = await clients.connect(head + b"x")
        await asyncio.sleep(1)
        assert client.statuses == ["413"]
        assert client.closed_at is not None

    played(play)


def test_answer_that_fails_half_way_closes_the_connection():
    async def failing() -> AsyncGenerator[bytes, None]:
        yield b"one"
        raise ValueError("boom")

    async def play(clients: Clients) -> None:
        clients.server.routes["/failing"] = lambda _: Response(200, "text/plain", failing())
        client = await clients.connect(request("/failing"))
        await asyncio.sleep(1)
        assert client.closed_at is not None
        assert clients.supervisor.survived == {"HTTP request": 1}
        assert clients.server.scrapes == 0

    played(play)
