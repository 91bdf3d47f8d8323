"""The client's connection: negotiation, pipelining, deadlines, and nodes that misbehave."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import ApiMessage
from protocol.transport.client import Connection, ConnectionLost
from protocol.transport.dispatch import (
    HandlerTable,
    RequestContext,
    nobody,
    own_peers,
)
from protocol.transport.own_names import BROKER_SOFTWARE_NAME, Own
from protocol.transport.server import Server
from testkit.memory.sockets import Echo, framed, on_both_loops, serving
from testkit.memory.turns import until


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Connection]:
    connection = await Connection.connect(*server.address, "tester")
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def node(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[str, int]]:
    """Serve connections of a node with the test's function over raw streams."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    writers: list[asyncio.StreamWriter] = []
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: one that never started would leave its connection open when the loop
        # ends.
        writers.append(writer)
        tasks.add(asyncio.create_task(run(reader, writer)))

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        host, port = listening.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        listening.close()
        for writer in writers:
            writer.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@on_both_loops
async def test_negotiation() -> None:
    table = HandlerTable()
    table.serve_api_versions()
    table.register(ApiKey.METADATA, Echo().metadata, max_version=9)
    async with serving(table) as server, connected(server) as client:
        assert client.version_for(MetadataRequest) == 9
        assert client.version_for(MetadataRequest, 4) == 4
        answer = await client.request(MetadataRequest(topics=[]))
        assert answer == MetadataResponse(cluster_id="tester")
        (peer,) = server.connections
        assert peer.software_name == "kraftbox"
        assert client.features is not None
        for request, version in ((MetadataRequest(), 10), (HeartbeatRequest(), None)):
            with pytest.raises(ApiError) as caught:
                await client.request(request, 1000, version)
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert not client.is_closed


@on_both_loops
async def test_a_broker_is_offered_what_clients_are_not() -> None:
    table = HandlerTable(own_kind=own_peers("PLAINTEXT"))
    table.serve_api_versions()
    table.register(ApiKey.METADATA, Echo().metadata, max_version=9, own_max_version=10)
    async with serving(table) as server, connected(server) as client:
        own = await Connection.connect(*client.peer, software_name=BROKER_SOFTWARE_NAME)
        assert (client.version_for(MetadataRequest), own.version_for(MetadataRequest)) == (9, 10)
        assert await own.request(MetadataRequest(topics=[])) == MetadataResponse(cluster_id=None)
        await own.close()


@on_both_loops
async def test_some_versions_are_taken_by_number_only() -> None:
    """Such a message has a version of its own between two of our nodes, in some of their
    requests."""
    table = HandlerTable()
    table.serve_api_versions()
    table.register(ApiKey.FETCH, Echo().metadata, max_version=18, own_max_version=19)
    table.register(ApiKey.GET_REPLICA_LOG_INFO, Echo().metadata, own_only=True)
    table.own_kind = lambda connection: Own.BROKER
    async with serving(table) as server, connected(server) as client:
        assert client.versions[ApiKey.FETCH].last == 19
        assert client.version_for(FetchRequest) == 18
        assert client.offers(FetchRequest, 19)
        assert client.version_for(FetchRequest, 19) == 19
        table.own_kind = nobody
        async with serving(table) as again, connected(again) as other:
            assert not other.offers(FetchRequest, 19)
            assert not other.offers(AlterPartitionRequest, 3)
            with pytest.raises(ApiError):
                other.version_for(FetchRequest, 19)
        stranger = await Connection.connect(*server.address, negotiate=False)
        assert stranger.version_for(FetchRequest) == 18
        await stranger.close()


@on_both_loops
async def test_older_node() -> None:
    versions: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await read_frame(reader)
            api, version, correlation_id = struct.unpack_from(">hhi", frame)
            versions.append(version)
            error = 35 if version > 2 else 0
            body = struct.pack(">ihihhh", correlation_id, error, 1, api, 0, 2)
            writer.write(framed(body + (bytes(4) if version in (1, 2) else b"")))

    async with node(serve) as address:
        client = await Connection.connect(*address)
        assert versions == [5, 2]
        assert client.version_for(ApiVersionsRequest) == 2
        await client.close()


@on_both_loops
async def test_pipelining() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, connected(server) as client:
        futures = [client.send(HeartbeatRequest(group_id="x" * n)) for n in range(12)]
        assert client.inflight == 12
        for n in range(12):
            await echo.until(lambda n=n: "x" * n in echo.waiting)  # type: ignore[misc]
            echo.release("x" * n)
        answers = await asyncio.gather(*futures)
        assert [answer.throttle_time_ms for answer in answers] == list(range(12))
        assert client.inflight == 0


@on_both_loops
async def test_request_behind_one_whose_time_is_up_is_sent() -> None:
    """uvloop gives no timer for a moment that has passed."""
    echo = Echo()
    async with serving(echo.table()) as server:
        client = await Connection.connect(*server.address)
        late = client.send(HeartbeatRequest(group_id="late"), -1.0)
        other = client.send(HeartbeatRequest(group_id="other"), 60_000)
        for request in (late, other):
            with pytest.raises(ConnectionLost):
                await request


@on_both_loops
async def test_deadline_closes_the_connection() -> None:
    echo = Echo()
    async with serving(echo.table()) as server:
        client = await Connection.connect(*server.address)
        slow = client.send(HeartbeatRequest(group_id="slow"), 60_000)
        quick = client.send(HeartbeatRequest(group_id="quick"), 20)
        with pytest.raises(ConnectionLost, match="HEARTBEAT was not answered in time"):
            await quick
        with pytest.raises(ConnectionLost):
            await slow
        with pytest.raises(ConnectionLost):
            await client.request(MetadataRequest())
        with pytest.raises(ConnectionLost):
            client.send_unanswered(MetadataRequest())
        assert client.is_closed
        await client.close()


@on_both_loops
async def test_a_deadline_that_is_met_does_no_harm() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, connected(server) as client:
        await client.request(MetadataRequest(topics=[]), 2000)
        patient = client.send(HeartbeatRequest(group_id="a"), 60_000)
        given_up = client.send(HeartbeatRequest(group_id="b"), 20)
        given_up.cancel()
        short = client._timer
        await until(lambda: client._timer is not short)
        assert not client.is_closed
        echo.release("a")
        echo.release("b")
        assert (await patient).throttle_time_ms == 1
        await client.request(MetadataRequest(topics=[]))


@on_both_loops
async def test_node_goes_away() -> None:
    echo = Echo()
    async with serving(echo.table()) as server:
        client = await Connection.connect(*server.address)
        future = client.send(HeartbeatRequest(group_id="a"))
        await echo.until(lambda: bool(echo.contexts))
        echo.contexts[0].connection.close("test")
        with pytest.raises(ConnectionLost, match="closed by the node"):
            await future
        assert client.is_closed
        await client.close()


@on_both_loops
async def test_close_fails_what_waits() -> None:
    async with serving(Echo().table()) as server:
        client = await Connection.connect(*server.address)
        future = client.send(HeartbeatRequest(group_id="a"))
        await client.close()
        await client.close()
        with pytest.raises(ConnectionLost):
            await future
        client.abort()


@on_both_loops
async def test_connect_fails() -> None:
    async with serving(Echo().table()) as server:
        host, port = server.address
    with pytest.raises(OSError):
        await Connection.connect(host, port, timeout_ms=2000)


@on_both_loops
async def test_node_that_never_answers_api_versions() -> None:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with node(serve) as address:
        with pytest.raises(ConnectionLost):
            await Connection.connect(*address, timeout_ms=30)


@on_both_loops
@pytest.mark.parametrize(
    "reply",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        framed(b"\x00\x00"),
        framed(struct.pack(">i", 999) + bytes(20)),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_nonsense_from_the_node(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(reply)
        await reader.read()

    async with node(serve) as address:
        with pytest.raises(ConnectionLost):
            await Connection.connect(*address, timeout_ms=5000)


@on_both_loops
async def test_unreadable_response() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(framed(bytes(4) + b"\x00\x00\xff\xff\xff\xff\x0f"))
        await reader.read()

    async with node(serve) as address:
        with pytest.raises(ProtocolError):
            await Connection.connect(*address, timeout_ms=5000)


class Sized:
    """A Metadata handler whose topics have as many bytes as the request's first topic names."""

    def __call__(self, _: RequestContext, request: MetadataRequest) -> ApiMessage:
        assert request.topics is not None
        size = int(request.topics[0].name or "0")
        names = ["n" * min(30_000, size - at) for at in range(0, size, 30_000)]
        return MetadataResponse(
            topics=[MetadataResponse.MetadataResponseTopic(name=name) for name in names]
        )


@on_both_loops
async def test_responses_of_any_size() -> None:
    table = HandlerTable()
    table.serve_api_versions()
    table.register(ApiKey.METADATA, Sized())
    async with serving(table) as server, connected(server) as client:

        async def ask(size: int) -> None:
            topic = MetadataRequest.MetadataRequestTopic(name=str(size))
            answer = await client.request(MetadataRequest(topics=[topic]))
            assert sum(len(one.name or "") for one in answer.topics) == size

        for size in (0, 10_000, 70_000, 260_000, 3_000_000, 20_000_000, 5):
            await ask(size)
        await asyncio.gather(*(ask(n * 1000) for n in range(200)))


@on_both_loops
async def test_node_that_does_not_read() -> None:
    hold = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        await hold.wait()

    async with node(serve) as address:
        client = await Connection.connect(*address, negotiate=False)
        big = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="n" * 30_000)] * 1000
        )
        sent = [client.send(big) for _ in range(2)]
        await until(lambda: client._paused)
        with pytest.raises(ConnectionLost, match="does not read"):
            await client.request(big, 20)
        for future in sent:
            with pytest.raises(ConnectionLost):
                await future
        await client.close()
        hold.set()


@on_both_loops
async def test_request_waits_until_the_node_reads() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, connected(server) as client:
        client.pause_writing()
        client.pause_writing()
        waiting = asyncio.ensure_future(client.request(MetadataRequest(topics=[])))
        await asyncio.sleep(0)
        assert not echo.asked
        client.resume_writing()
        assert (await waiting).cluster_id == "tester"


@on_both_loops
async def test_requests_that_wait_until_the_node_reads_keep_their_order() -> None:
    """T1: a new request does not overtake waiting ones when the node reads again."""
    echo = Echo()
    async with serving(echo.table()) as server, connected(server) as client:

        def ask(name: str) -> asyncio.Future[HeartbeatResponse]:
            return asyncio.ensure_future(client.request(HeartbeatRequest(group_id=name)))

        client.pause_writing()
        waiting = [ask(name) for name in "abcd"]
        await asyncio.sleep(0)
        waiting[1].cancel()
        client.resume_writing()
        waiting.append(ask("e"))
        await until(lambda: len(echo.asked) == 4)
        assert "".join(echo.asked) == "acde"
        for name in "acde":
            echo.release(name)
        await asyncio.wait(waiting)


@on_both_loops
async def test_client_buffer_refilled_by_one_request_keeps_the_next_waiting() -> None:
    """A waiting request's timeout counts from its start, however often the buffer has room in
    between."""
    echo = Echo()
    async with serving(echo.table()) as server, connected(server) as client:
        client.pause_writing()
        waiting = [asyncio.ensure_future(client.request(MetadataRequest())) for _ in range(2)]
        await asyncio.sleep(0)
        client.resume_writing()
        client.pause_writing()
        await until(waiting[0].done)
        assert len(echo.asked) == 1
        client.resume_writing()
        assert (await waiting[1]).cluster_id == "tester"


@pytest.mark.parametrize("host", ["é" * 70, "a\0b", "a..b", "x" * 300])
async def test_connect_to_an_invalid_host_raises_oserror(host: str) -> None:
    """Addresses also come from the network; connecting raises network errors only."""
    with pytest.raises(OSError):
        await Connection.connect(host, 9092, "test", 1000)


@pytest.mark.parametrize("port", [-1, 65_536, 2**31 - 1])
async def test_connect_to_an_invalid_port_raises_oserror(port: int) -> None:
    with pytest.raises(OSError):
        await Connection.connect("127.0.0.1", port, "test", 1000)
