"""The server on real sockets: order, bounds, back-pressure, bad input.

B1 to B10, B14 to B16 and B43 to B46 of the bad-input catalogue.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import ApiMessage
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.exchange import REQUESTS_PER_TURN, WRITE_PAUSED
from protocol.transport.limits import ServerLimits
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import ManualClock, SystemClock
from runtime.log import captured
from testkit.memory.sockets import (
    Echo,
    RawClient,
    correlation_id_of,
    framed,
    heartbeat,
    metadata,
    on_both_loops,
    raw_client,
    read_response,
    request_bytes,
    serving,
)
from testkit.memory.turns import until


async def answers(client: RawClient, correlation_id: int) -> None:
    """Assert that the connection still answers."""
    client.writer.write(metadata(correlation_id))
    assert correlation_id_of(await client.response()) == correlation_id


# --- framing ---------------------------------------------------------------------------------


@on_both_loops
async def test_one_byte_at_a_time() -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        for byte in metadata(7, "abc") + metadata(8, None):
            client.writer.write(bytes((byte,)))
            await client.writer.drain()
            await asyncio.sleep(0)
        first = read_response(await client.response(), ApiKey.METADATA, 12)
        assert first == (7, MetadataResponse(cluster_id="abc"))
        assert correlation_id_of(await client.response()) == 8


@on_both_loops
async def test_fifty_frames_in_one_segment() -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(b"".join(metadata(n) for n in range(50)))
        assert [correlation_id_of(await client.response()) for _ in range(50)] == list(range(50))


@on_both_loops
async def test_more_frames_than_one_turn_serves() -> None:
    count = REQUESTS_PER_TURN * 20
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(b"".join(metadata(n) for n in range(count)))
        got = [correlation_id_of(await client.response()) for _ in range(count)]
        assert got == list(range(count))


@on_both_loops
@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11, 20])
async def test_cut_frame_then_end(cut: int) -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(metadata(1) + metadata(2)[:cut])
        assert correlation_id_of(await client.response()) == 1
        client.writer.write_eof()
        assert await client.closed() == b""
        assert server.connection_stats.open == 0


@on_both_loops
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
async def test_impossible_length_closes(size: int) -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(struct.pack(">i", size))
        assert await client.closed() == b""


@on_both_loops
@pytest.mark.parametrize("size", [0, 1, 3, 7, 8, 9])
async def test_frame_too_short_for_a_header_closes(size: int) -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(framed(metadata(1)[4 : 4 + size]))
        assert await client.closed() == b""


@on_both_loops
@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
)
async def test_other_protocols_are_closed(hello: bytes) -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(hello)
        assert await client.closed() == b""


@on_both_loops
async def test_large_frames_and_the_limit() -> None:
    async with (
        serving(Echo().table(), request_bytes_max=3_000_000) as server,
        raw_client(server) as client,
    ):
        for size in (100_000, 300_000, 2_900_000, 10):
            padded = metadata(size)[4:] + bytes(size)
            client.writer.write(framed(padded))
            assert correlation_id_of(await client.response()) == size
        (connection,) = server.connections
        client.writer.write(framed(metadata(1)[4:].ljust(3_000_000, b"\x00")))
        assert correlation_id_of(await client.response()) == 1
        assert connection.exchange.buffer.own_bytes == 0
        client.writer.write(struct.pack(">i", 3_000_001))
        assert await client.closed() == b""


@on_both_loops
async def test_b04_announced_size_takes_no_memory() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(metadata(1) + struct.pack(">i", 100_000_000) + b"0123456789")
        assert correlation_id_of(await client.response()) == 1
        (connection,) = server.connections
        assert connection.exchange.buffer.own_bytes <= 512


# --- order, bounds, back-pressure ------------------------------------------------------------


@on_both_loops
async def test_replies_keep_the_order_of_their_requests() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 1) + metadata(2) + heartbeat("b", 3) + metadata(4))
        await echo.until(lambda: len(echo.asked) == 4)
        echo.release("b")
        await answers_nothing(client)
        echo.release("a")
        got = [correlation_id_of(await client.response()) for _ in range(4)]
        assert got == [1, 2, 3, 4]
        await answers(client, 5)


async def answers_nothing(client: RawClient) -> None:
    """Assert that nothing has arrived although a later reply is ready."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not client.reader._buffer  # type: ignore[attr-defined]


@on_both_loops
async def test_inflight_is_bounded() -> None:
    echo = Echo()
    async with serving(echo.table(), max_inflight=3) as server, raw_client(server) as client:
        client.writer.write(b"".join(heartbeat(f"g{n}", n) for n in range(10)))
        await echo.until(lambda: len(echo.asked) == 3)
        (connection,) = server.connections
        assert connection.inflight == 3
        assert not connection._transport.is_reading()
        for n in range(10):
            await echo.until(lambda n=n: f"g{n}" in echo.waiting)  # type: ignore[misc]
            assert len(echo.asked) <= n + 3
            echo.release(f"g{n}")
            assert correlation_id_of(await client.response()) == n
        assert connection._transport.is_reading()


@on_both_loops
async def test_request_without_a_response_counts_as_in_flight_until_it_ends() -> None:
    """acks=0 with batches that are validated elsewhere: the client is read no faster than they are.

    The parts of a request that a handler keeps count as request memory until then.
    """
    memory = RequestMemory(1 << 20)
    echo = Echo()
    async with (
        serving(echo.table(), max_inflight=3, memory=memory) as server,
        raw_client(server) as client,
    ):
        client.writer.write(b"".join(heartbeat(f"g{n}", n) for n in range(10)) + metadata(10))
        for n in range(10):
            await echo.until(lambda n=n: f"g{n}" in echo.waiting)  # type: ignore[misc]
            assert len(echo.asked) <= n + 3
            before = memory.used_bytes
            echo.contexts[n].connection.keep(1000, echo.waiting[f"g{n}"])
            assert memory.used_bytes == before + 1000
            echo.waiting.pop(f"g{n}").set_result(None)
        assert correlation_id_of(await client.response()) == 10
    assert memory.used_bytes == 0


@on_both_loops
async def test_b46_a_flood_stays_in_the_socket() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(heartbeat("first", 0))
        flood = b"".join(heartbeat(f"{n}", n) for n in range(100_000))
        client.writer.write(flood)
        await echo.until(lambda: len(echo.asked) == 5)
        (connection,) = server.connections
        assert connection.inflight == 5
        assert connection.exchange.buffer.own_bytes <= 2 * server.limits.receive_buffer_bytes
        assert server.connection_stats.bytes_in < len(flood)


class Large:
    """A Metadata handler whose answer has a quarter of a megabyte."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, _: RequestContext, __: MetadataRequest) -> ApiMessage:
        self.asked += 1
        topics = [MetadataResponse.MetadataResponseTopic(name="t" * 25_000) for _ in range(10)]
        return MetadataResponse(topics=topics)


@on_both_loops
async def test_b45_a_reader_that_never_reads() -> None:
    large = Large()
    table = HandlerTable()
    table.register(ApiKey.METADATA, large)
    count = 400
    async with serving(table) as server, raw_client(server) as client:
        client.writer.transport.pause_reading()
        client.writer.write(b"".join(metadata(n) for n in range(count)))
        (connection,) = await connections(server, 1)
        await until(lambda: connection.exchange.holds & WRITE_PAUSED)
        served = large.asked
        assert served < count
        assert not connection._transport.is_reading()
        assert connection._transport.get_write_buffer_size() < 2_000_000
        for _ in range(20):
            await asyncio.sleep(0)
        assert large.asked == served
        client.writer.transport.resume_reading()
        got = [correlation_id_of(await client.response()) for _ in range(count)]
        assert got == list(range(count))


async def connections(server: Server, count: int) -> list:  # type: ignore[type-arg]
    await until(lambda: server.connection_stats.open == count)
    return list(server.connections)


# --- ends ------------------------------------------------------------------------------------


@on_both_loops
async def test_close_callbacks_run_once_when_the_client_goes() -> None:
    echo = Echo()
    called: list[str] = []
    gone = asyncio.Event()
    async with serving(echo.table()) as server:
        async with raw_client(server) as client:
            client.writer.write(heartbeat("a", 1))
            await echo.until(lambda: bool(echo.contexts))
            connection = echo.contexts[0].connection
            connection.add_close_callback(lambda: called.append("first"))
            removed = lambda: called.append("removed")  # noqa: E731
            connection.add_close_callback(removed)
            connection.remove_close_callback(removed)
            connection.remove_close_callback(removed)
            connection.add_close_callback(gone.set)
        await gone.wait()
        assert called == ["first"]
        connection.add_close_callback(lambda: called.append("late"))
        assert called == ["first", "late"]
        echo.release("a")  # a reply without a client
        assert server.connection_stats.open == 0


@on_both_loops
async def test_handler_may_close_the_connection() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 1))
        await echo.until(lambda: bool(echo.contexts))
        echo.contexts[0].connection.close("test")
        assert await client.closed() == b""


@on_both_loops
async def test_b04_idle_connections_are_closed_and_busy_ones_kept() -> None:
    echo = Echo()
    async with (
        serving(echo.table(), idle_ms=200.0) as server,
        raw_client(server) as idle,
        raw_client(server) as half,
        raw_client(server) as busy,
    ):
        half.writer.write(metadata(1)[:9])
        busy.writer.write(heartbeat("busy", 1))
        assert await idle.closed() == b""
        assert await half.closed() == b""
        assert server.connection_stats.closed_idle == 2
        echo.release("busy")
        assert correlation_id_of(await busy.response()) == 1


async def test_idle_time_begins_when_a_request_is_answered() -> None:
    """The reply to a JoinGroup may take longer than connections.max.idle.ms."""
    clock, go = ManualClock(), asyncio.Event()

    async def later(_: RequestContext, request: MetadataRequest) -> ApiMessage:
        await go.wait()
        return MetadataResponse()

    table = HandlerTable()
    table.register(ApiKey.METADATA, later)
    async with serving(table, clock=clock, idle_ms=1_000.0) as server, raw_client(server) as client:
        client.writer.write(metadata(1))
        await until(lambda: any(c.inflight for c in server.connections))
        clock.advance(5_000.0)
        go.set()
        await client.response()
        server._scan(100.0)
        assert server.connection_stats.closed_idle == 0
        clock.advance(1_001.0)
        server._scan(100.0)
        assert server.connection_stats.closed_idle == 1


async def test_server_that_is_closed_while_it_begins_to_listen_sets_no_timer() -> None:
    server = Server(HandlerTable(), clock=ManualClock(), listener="X")

    class Listening:
        async def start_serving(self) -> None:
            await server.close()

        def close(self) -> None:
            pass

        async def wait_closed(self) -> None:
            pass

    server._sockets.append(cast(Any, Listening()))
    await server.listen()
    assert server._scan_timer is None


@on_both_loops
async def test_b45_idle_reader_that_never_reads_is_closed() -> None:
    table = HandlerTable()
    table.register(ApiKey.METADATA, Large())
    async with serving(table, idle_ms=200.0) as server, raw_client(server) as client:
        client.writer.transport.pause_reading()
        client.writer.write(b"".join(metadata(n) for n in range(400)))
        await connections(server, 1)
        await connections(server, 0)
        assert server.connection_stats.closed_idle == 1


@on_both_loops
async def test_graceful_close_answers_what_is_in_flight() -> None:
    echo = Echo()
    server = Server(echo.table(), clock=SystemClock(), listener="PLAINTEXT")
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as client, raw_client(server) as other:
        client.writer.write(heartbeat("a", 1) + heartbeat("b", 2))
        await echo.until(lambda: len(echo.asked) == 2)
        closing = asyncio.ensure_future(server.close(grace_ms=10_000.0))
        assert await other.closed() == b""
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(*server.address)
        echo.release("b")
        echo.release("a")
        assert correlation_id_of(await client.response()) == 1
        assert correlation_id_of(await client.response()) == 2
        assert await client.closed() == b""
        await closing
    assert server.connection_stats.open == 0


@on_both_loops
async def test_close_cuts_what_is_not_answered_in_time() -> None:
    echo = Echo()
    server = Server(echo.table(), clock=SystemClock(), listener="PLAINTEXT")
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as client:
        client.writer.write(heartbeat("a", 1))
        await echo.until(lambda: len(echo.asked) == 1)
        await server.close(grace_ms=20.0)
        assert await client.closed() == b""


# --- limits ----------------------------------------------------------------------------------


@on_both_loops
async def test_admission_hook() -> None:
    server = Server(
        Echo().table(), clock=SystemClock(), listener="X", on_admit=lambda one: "not today"
    )
    await server.start("", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address[1])
    assert await RawClient(reader, writer).closed() == b""
    writer.close()
    assert server.connection_stats.refused == 1
    await server.close()


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="max_inflight"):
        ServerLimits(max_inflight=0)


# --- contents of requests -------------------------------------------------------------------------


@on_both_loops
async def test_context_and_correlation_id() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        hostile = "a\x00b\n\x1b[31m" * 100
        client.writer.write(metadata(-5, hostile))
        assert correlation_id_of(await client.response()) == -5
        context = echo.contexts[0]
        assert context.client_id == hostile
        assert context.connection.client_id == hostile
        assert (context.api_key, context.api_version) == (ApiKey.METADATA, 12)
        assert (context.listener, context.client_host) == ("PLAINTEXT", "127.0.0.1")
        assert context.principal == "User:ANONYMOUS"
        assert context.connection.peer_port == client.writer.get_extra_info("sockname")[1]


@on_both_loops
@pytest.mark.parametrize(
    ("api_key", "version"),
    [(0, 9), (4, 1), (-1, 0), (999, 0), (52, 0), (3, 99), (3, -1), (12, 5)],
)
async def test_connection_with_an_unsupported_api_or_version_is_closed(
    api_key: int, version: int
) -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(framed(struct.pack(">hhih", api_key, version, 1, -1) + bytes(30)))
        assert await client.closed() == b""


@on_both_loops
async def test_broken_body_is_closed_with_one_line() -> None:
    with captured() as lines:
        async with serving(Echo().table()) as server:
            for _ in range(5):
                async with raw_client(server) as client:
                    client.writer.write(framed(metadata(1)[4:18] + b"\xff\xff\xff\xff\x0f"))
                    assert await client.closed() == b""
    closed = [line for line in lines if line["event"] == "Closing a connection"]
    assert len(closed) == 1


@on_both_loops
async def test_trailing_bytes_are_ignored() -> None:
    with captured() as lines:
        async with serving(Echo().table()) as server, raw_client(server) as client:
            client.writer.write(framed(metadata(3)[4:] + b"more"))
            assert correlation_id_of(await client.response()) == 3
    assert [line["bytes"] for line in lines if "longer" in line["event"]] == [4]


@on_both_loops
@pytest.mark.parametrize("version", [6, 99, 32767, -1])
async def test_unknown_version_of_api_versions(version: int) -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(framed(struct.pack(">hhih", 18, version, 77, -1) + b"\x00garbage"))
        frame = await client.response()
        correlation_id, answer = read_response(frame, ApiKey.API_VERSIONS, 0)
        assert correlation_id == 77
        assert answer.error_code == 35
        assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [
            (18, 0, 5)
        ]
        await answers(client, 1)


@on_both_loops
async def test_unknown_version_of_api_versions_keeps_the_order() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 1) + framed(struct.pack(">hhih", 18, 99, 2, -1)))
        client.writer.write(metadata(3))
        await echo.until(lambda: len(echo.asked) == 2)
        await answers_nothing(client)
        echo.release("a")
        assert [correlation_id_of(await client.response()) for _ in range(3)] == [1, 2, 3]


@on_both_loops
async def test_api_versions_header_has_no_tags() -> None:
    async with serving(Echo().table()) as server, raw_client(server) as client:
        for version in range(6):
            request = ApiVersionsRequest()
            if version >= 3:
                request = ApiVersionsRequest(
                    client_software_name="a-b.c", client_software_version="1.0"
                )
            client.writer.write(request_bytes(request, version, version))
            frame = await client.response()
            correlation_id, answer = read_response(frame, ApiKey.API_VERSIONS, version)
            assert correlation_id == version
            assert [key.api_key for key in answer.api_keys] == [3, 12, 18]
        (connection,) = server.connections
        assert (connection.software_name, connection.software_version) == ("a-b.c", "1.0")


@on_both_loops
async def test_counters() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        request = metadata(1)
        client.writer.write(request + request)
        size = 2 * (4 + len(await client.response()))
        await client.response()
        stats = server.handlers.entries[ApiKey.METADATA].stats
        assert stats.requests[12] == 2
        assert stats.bytes_in == 2 * len(request) == server.connection_stats.bytes_in
        assert stats.bytes_out == size == server.connection_stats.bytes_out
        assert sum(stats.total) == sum(stats.local) == sum(stats.response_send) == 2
        assert server.connection_stats.open == 1


async def test_the_buffer_of_a_quiet_connection_shrinks() -> None:
    clock = ManualClock()
    server = Server(Echo().table(), clock=clock, listener="X")
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as client:
        (connection,) = await connections(server, 1)
        await client.greet()
        greeted = server.connection_stats.bytes_in
        client.writer.write(framed(metadata(1)[4:].ljust(900_000, b"\x00"))[:300_000])
        await until(lambda: server.connection_stats.bytes_in == greeted + 300_000)
        assert connection.exchange.buffer.own_bytes >= 300_000
        client.writer.write(framed(metadata(1)[4:].ljust(900_000, b"\x00"))[300_000:] + b"\x00")
        await client.response()
        await until(lambda: server.connection_stats.bytes_in == greeted + 900_005)
        clock.advance(20_000)
        server._scan(10_000.0)
        assert connection.exchange.buffer.own_bytes == 512 == server.memory.used_bytes
        client.writer.write(metadata(2)[1:])
        assert correlation_id_of(await client.response()) == 2
        assert connection.exchange.buffer.own_bytes == 0 == server.memory.used_bytes
    await server.close()


async def test_large_requests_use_own_buffers_that_are_reused() -> None:
    server = Server(Echo().table(), clock=ManualClock(), listener="X")
    await server.start("127.0.0.1", 0)
    usual = server.limits.receive_buffer_bytes
    request = framed(metadata(1)[4:].ljust(60_000, b"\x00"))
    async with raw_client(server) as client:
        (connection,) = await connections(server, 1)
        buffers = set()
        for turn in range(3):
            client.writer.write(request + request[:100])
            await client.response()
            arrived = (2 * turn + 1) * len(request) + 100
            await until(lambda arrived=arrived: server.connection_stats.bytes_in == arrived)  # type: ignore[misc]
            assert connection.exchange.buffer.own_bytes == usual == server.memory.used_bytes
            buffers.add(id(connection.exchange.buffer.view.obj))
            client.writer.write(request[100:])
            await client.response()
            assert connection.exchange.buffer.own_bytes == 0 == server.memory.used_bytes
        assert len(buffers) == 1
    await server.close()
