"""Large requests and responses are decoded in slices: order, fairness, memory, and their end.

Steps are counted, not seconds: the clock stands still, so that a slice is `STEPS_MAX` steps.
"""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.compiler.steps import STEP_WORK
from protocol.decoding import FREED_AT_ONCE, Allowance, Decoding
from protocol.errors import ProtocolError
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import ApiMessage
from protocol.transport.client import Connection, ConnectionLost
from protocol.transport.connection import ServerConnection
from protocol.transport.decode_queue import (
    STEPS_MAX,
    STEPS_TOGETHER,
    DecodeQueue,
    decode_in_slices,
)
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.exchange import DECODING
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import ManualClock
from runtime.collector import Collector
from testkit.memory.sockets import (
    framed,
    metadata,
    on_both_loops,
    raw_client,
    serving,
)
from testkit.memory.turns import until

SLICE_WORK = STEPS_MAX * (STEP_WORK + 1)


def names(count: int, last: bytes = b"\0\1a") -> bytes:
    """A Metadata request, version 1, for topics of one letter."""
    return struct.pack(">i", count) + b"\0\1a" * (count - 1) + last


def frame_of(body: bytes, correlation_id: int = 0) -> bytes:
    return framed(struct.pack(">hhih", ApiKey.METADATA, 1, correlation_id, -1) + body)


class FakeJob:
    """A request for `count` names."""

    def __init__(self, ended: list[tuple[FakeJob, ProtocolError | None]], body: bytes) -> None:
        self.decoding: Decoding[Any] = Decoding(
            MetadataRequest, memoryview(body), 1, 0, Allowance()
        )
        self._ended = ended

    def decoded(self, error: ProtocolError | None) -> None:
        self._ended.append((self, error))


class Iterations:
    """An event loop that is moved by hand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.count = 0

    def run(self) -> None:
        while self.soon:
            calls, self.soon = self.soon, []
            assert len(calls) == 1, "one slice per iteration for all requests"
            self.count += 1
            calls[0]()


def test_queue_serves_requests_in_turn_one_slice_each() -> None:
    loop = Iterations()
    queue = DecodeQueue(lambda call: loop.soon.append(call), lambda: 0.0)
    ended: list[Any] = []
    large = FakeJob(ended, names(3 * SLICE_WORK))
    small = FakeJob(ended, names(SLICE_WORK + 1))
    for job in (large, small):
        queue.add(job)
    loop.run()
    assert [job for job, _ in ended] == [small, large]
    assert 6 <= loop.count <= 7
    assert len(queue) == 0


def test_queue_reports_a_refusal_and_goes_on() -> None:
    loop = Iterations()
    queue = DecodeQueue(lambda call: loop.soon.append(call), lambda: 0.0)
    ended: list[Any] = []
    broken = FakeJob(ended, names(2 * SLICE_WORK, b"\0\x7fa"))
    good = FakeJob(ended, names(3 * SLICE_WORK))
    for job in (broken, good):
        queue.add(job)
    loop.run()
    assert [(job, error is None) for job, error in ended] == [(broken, False), (good, True)]


def test_queue_drops_a_request_whose_connection_is_gone() -> None:
    loop = Iterations()
    queue = DecodeQueue(lambda call: loop.soon.append(call), lambda: 0.0)
    ended: list[Any] = []
    job = FakeJob(ended, names(2 * SLICE_WORK))
    queue.add(job)
    loop.soon.pop()()
    queue.remove(job)
    loop.run()
    assert ended == []


def test_queue_frees_a_message_that_cannot_be_read_in_iterations_to_come() -> None:
    """The objects before the damaged end may be as large as a complete request."""
    loop = Iterations()
    queue = DecodeQueue(lambda call: loop.soon.append(call), lambda: 0.0)
    ended: list[Any] = []
    broken = FakeJob(ended, names(20 * SLICE_WORK, b"\0\x7fa"))
    queue.add(broken)
    loop.run()
    iterations = loop.count
    queue.free(broken.decoding)
    loop.run()
    assert loop.count - iterations >= 20 * SLICE_WORK / (STEPS_MAX * FREED_AT_ONCE)


@pytest.mark.parametrize("end", ["freed", "dropped", "refused"])
def test_queue_postpones_full_collections_until_the_objects_are_freed(end: str) -> None:
    """A full collection would visit a million elements."""
    loop = Iterations()
    queue = DecodeQueue(lambda call: loop.soon.append(call), lambda: 0.0)
    last = b"\0\x7fa" if end == "refused" else b"\0\1a"
    collector = Collector()
    collector.start()
    try:
        usual = gc.get_threshold()
        job = FakeJob([], names(2 * SLICE_WORK, last))
        queue.add(job)
        assert gc.get_threshold()[2] > usual[2]
        if end == "dropped":
            loop.soon.pop()()
            queue.remove(job)
        else:
            loop.run()
        queue.free(job.decoding)
        assert gc.get_threshold()[2] > usual[2], "the objects are not freed yet"
        loop.run()
        assert gc.get_threshold() == usual
    finally:
        collector.stop()


async def test_decode_in_slices_lets_others_run_in_between() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    body = names(10_000)
    message, end = await decode_in_slices(MetadataRequest, body, 1)
    other.cancel()
    assert (len(message.topics or ()), end) == (10_000, len(body))
    assert turns >= 10_000 / (STEPS_TOGETHER * (STEP_WORK + 1)) - 1


# --- a server's connections --------------------------------------------------------------------


class Handled:
    """A Metadata handler that notes how many names came, and answers when it is let."""

    def __init__(self, *, waits: bool = False) -> None:
        self.counts: list[int] = []
        self.go = asyncio.Event()
        self.table = HandlerTable()
        self.table.serve_api_versions()
        self.table.register(ApiKey.METADATA, self._later if waits else self._answer)

    def _answer(self, _: RequestContext, request: MetadataRequest) -> ApiMessage:
        self.counts.append(len(request.topics or ()))
        return MetadataResponse()

    async def _later(self, _: RequestContext, request: MetadataRequest) -> ApiMessage:
        self.counts.append(len(request.topics or ()))
        await self.go.wait()
        return MetadataResponse()


@on_both_loops
async def test_large_request_is_answered_before_those_behind_it() -> None:
    handled = Handled()
    memory = RequestMemory()
    async with (
        serving(handled.table, memory=memory, clock=ManualClock()) as server,
        raw_client(server) as client,
    ):
        for count in (40_000, 100_000):
            await client.greet()
            client.writer.write(frame_of(names(count), 1) + metadata(2) + metadata(3))
            ids = [int.from_bytes((await client.response())[:4], "big") for _ in range(3)]
            assert ids == [1, 2, 3]
        assert handled.counts == [0, 40_000, 0, 0, 0, 100_000, 0, 0]
        assert memory.used_bytes == 0
        assert memory.allowance.left_bytes == Allowance().left_bytes


@on_both_loops
async def test_others_are_served_while_a_large_request_is_decoded() -> None:
    handled = Handled()
    async with (
        serving(handled.table, clock=ManualClock()) as server,
        raw_client(server) as client,
        raw_client(server) as other,
    ):
        client.writer.write(frame_of(names(150_000), 1))
        await until(lambda: any(c.exchange.holds & DECODING for c in server.connections))
        await other.greet()
        assert handled.counts == [0]
        await client.response()
        assert handled.counts == [0, 150_000]


@on_both_loops
async def test_connection_that_ends_gives_back_what_its_request_holds() -> None:
    handled = Handled()
    memory = RequestMemory()
    async with serving(handled.table, memory=memory, clock=ManualClock()) as server:
        async with raw_client(server) as client:
            client.writer.write(frame_of(names(150_000), 1))
            await until(lambda: len(server.decode_queue) == 1)
            assert memory.used_bytes > 400_000
            for connection in server.connections:
                connection.abort()
            await until(lambda: server.connection_stats.open == 0)
        assert len(server.decode_queue) == 0
        assert memory.used_bytes == 0
        assert memory.allowance.left_bytes == Allowance().left_bytes
    assert handled.counts == []


@on_both_loops
async def test_request_that_waits_holds_its_memory_until_it_is_answered() -> None:
    handled = Handled(waits=True)
    memory = RequestMemory()
    async with (
        serving(handled.table, memory=memory, clock=ManualClock()) as server,
        raw_client(server) as client,
    ):
        client.writer.write(frame_of(names(150_000), 1))
        await until(lambda: handled.counts != [])
        assert memory.used_bytes > 400_000
        assert memory.allowance.left_bytes < Allowance().left_bytes
        handled.go.set()
        await client.response()
        assert memory.used_bytes == 0
        assert memory.allowance.left_bytes == Allowance().left_bytes


@on_both_loops
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("count", [3_000, 100_000])
async def test_large_request_that_cannot_be_read_closes(count: int, waits: bool) -> None:
    memory = RequestMemory()
    async with (
        serving(Handled(waits=waits).table, memory=memory, clock=ManualClock()) as server,
        raw_client(server) as client,
    ):
        client.writer.write(frame_of(names(count, b"\0\x7fa"), 1))
        assert await client.closed() == b""
        assert memory.used_bytes == 0
        assert memory.allowance.left_bytes == Allowance().left_bytes


@on_both_loops
async def test_closing_server_answers_a_request_that_is_being_decoded() -> None:
    handled = Handled()
    server = Server(handled.table, clock=ManualClock(), listener="PLAINTEXT")
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as client:
        client.writer.write(frame_of(names(150_000), 1))
        await until(lambda: len(server.decode_queue) == 1)
        await server.close()
        assert handled.counts == [150_000]
        assert (await client.response())[:4] == b"\0\0\0\1"


@pytest.mark.parametrize("works", [True, False])
async def test_requests_behind_one_that_took_an_iteration_wait_for_the_next(works: bool) -> None:
    """A connection's small requests are bounded in time as well as in number. All iterations are
    kept short afterwards if the requests used the processor in that time, not another program."""
    clock = ManualClock()
    table = HandlerTable()

    def slow(_: RequestContext, request: MetadataRequest) -> ApiMessage:
        clock.advance(6.0)
        return MetadataResponse()

    table.register(ApiKey.METADATA, slow)
    server = Server(table, clock=clock, listener="PLAINTEXT")
    server.cpu_s = lambda: clock.monotonic_ms() / 1000.0 if works else 1.0
    connection = ServerConnection(server, 1)
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    data = b"".join(metadata(number) for number in range(3))
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert len(transport.writes) == 1
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(transport.writes) == 3
    assert server.crowded is works
    await server.close()


class Transport:
    """Notes what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def nothing(self, **_: Any) -> None:
        pass

    set_write_buffer_limits = pause_reading = resume_reading = close = abort = nothing


# --- our client --------------------------------------------------------------------------------


def answer_of(count: int) -> MetadataResponse:
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)
    return MetadataResponse(brokers=[broker] * count)


@on_both_loops
async def test_client_decodes_a_large_response_in_slices() -> None:
    table = HandlerTable()
    table.serve_api_versions()
    answers = {0: answer_of(0), 1: answer_of(60_000)}
    table.register(ApiKey.METADATA, lambda _, request: answers[len(request.topics or ())])
    one = [MetadataRequest.MetadataRequestTopic(name="t")]
    async with serving(table) as server:
        client = await Connection.connect(*server.address)
        large = client.send(MetadataRequest(topics=one))
        small = client.send(MetadataRequest(topics=[]))
        order: list[int] = []
        large.add_done_callback(lambda _: order.append(1))
        small.add_done_callback(lambda _: order.append(2))
        assert len((await large).brokers) == 60_000
        assert (await small).brokers == []
        await asyncio.sleep(0)
        assert order == [1, 2]
        assert (await client.request(MetadataRequest(topics=[]))).brokers == []
        await client.close()


@on_both_loops
async def test_client_that_closes_fails_the_response_that_it_decodes() -> None:
    table = HandlerTable()
    table.serve_api_versions()
    table.register(ApiKey.METADATA, lambda _, request: answer_of(60_000))
    async with serving(table) as server:
        client = await Connection.connect(*server.address)
        large = client.send(MetadataRequest(topics=[]))
        await until(lambda: client._decoding is not None)
        await client.close()
        with pytest.raises(ConnectionLost):
            await large


@on_both_loops
async def test_client_refuses_a_response_of_too_many_tagged_fields() -> None:
    """A hostile node does not stall its clients."""
    table = HandlerTable()
    table.serve_api_versions()
    tags = dict.fromkeys(range(10001), b"")
    table.register(ApiKey.METADATA, lambda _, request: MetadataResponse(unknown_tags=tags))
    async with serving(table) as server:
        client = await Connection.connect(*server.address)
        with pytest.raises(ProtocolError, match="tagged fields"):
            await client.request(MetadataRequest(topics=[]))
        assert client.is_closed
