"""The request-memory budget: its rules, then connections under it."""

from __future__ import annotations

import asyncio

from protocol.transport.memory import OVERDRAFT_MS, RequestMemory
from protocol.transport.server import Server
from runtime.clock import ManualClock
from testkit.memory.sockets import (
    Echo,
    RawClient,
    correlation_id_of,
    framed,
    metadata,
    on_both_loops,
    raw_client,
    serving,
)
from testkit.memory.turns import until


class Eater:
    def __init__(self, memory: RequestMemory, wants: int) -> None:
        self.memory = memory
        self.wants = wants
        self.closed: str | None = None
        self.has = 0

    def feed(self, now_ms: float = 0.0) -> None:
        if self.memory.grant(self, self.wants, now_ms):
            self.has += self.wants

    def close(self, reason: str) -> None:
        self.closed = reason

    def finish(self) -> None:
        has, self.has = self.has, 0
        self.memory.give_back(has)
        self.memory.settle(self)


def test_without_a_limit_everything_is_granted() -> None:
    memory = RequestMemory(-1)
    eaters = [Eater(memory, 10**9) for _ in range(5)]
    for eater in eaters:
        eater.feed()
    assert memory.used_bytes == 5 * 10**9
    assert not memory.scarce


def test_one_may_go_over_the_limit_and_others_wait_in_order() -> None:
    memory = RequestMemory(100)
    one, two, three, four = (Eater(memory, 60) for _ in range(4))
    for eater in (one, two, three, four):
        eater.feed()
    assert memory.scarce
    assert (one.has, two.has, three.has, four.has) == (60, 60, 60, 0)
    assert (memory.waiting, memory.waits) == (1, 1)
    four.feed()
    assert (memory.waiting, memory.waits) == (1, 1)
    three.feed()
    assert three.has == 120
    one.finish()
    assert four.has == 0
    three.finish()
    assert four.has == 60
    two.finish()
    four.finish()
    assert memory.used_bytes == 0 == memory.waiting


def test_the_overdraft_passes_on_when_its_holder_is_gone() -> None:
    memory = RequestMemory(10)
    memory.charge(10)
    one, two = Eater(memory, 5), Eater(memory, 5)
    one.feed()
    two.feed()
    assert (one.has, two.has) == (5, 0)
    memory.settle(one)
    assert two.has == 5


def test_request_memory_skips_a_waiting_reader_that_settled() -> None:
    memory = RequestMemory(10)
    memory.charge(10)
    one, two = Eater(memory, 5), Eater(memory, 5)
    one.feed()
    two.feed()
    memory.settle(two)
    memory.give_back(10)
    one.finish()
    assert two.has == 0


def test_a_slow_holder_is_closed_only_when_others_wait() -> None:
    memory = RequestMemory(10)
    memory.charge(10)
    one, two = Eater(memory, 5), Eater(memory, 5)
    one.feed(1.0)
    memory.cut_off_slow(OVERDRAFT_MS + 2.0)
    assert one.closed is None
    two.feed()
    memory.cut_off_slow(OVERDRAFT_MS + 3.0)
    assert one.closed is None
    assert memory.cut_off == 0
    memory.cut_off_slow(2 * OVERDRAFT_MS + 3.0)
    assert one.closed is not None
    assert memory.cut_off == 1


# --- connections -------------------------------------------------------------------------------


def big(correlation_id: int, size: int) -> bytes:
    return framed(metadata(correlation_id)[4:].ljust(size, b"\x00"))


@on_both_loops
async def test_exhausted_memory_stops_reading_and_loses_nothing() -> None:
    memory = RequestMemory(1_000_000)
    size = 900_000
    async with (
        serving(Echo().table(), memory=memory) as server,
        raw_client(server) as one,
        raw_client(server) as two,
        raw_client(server) as three,
    ):
        clients = (one, two, three)
        for client in clients:
            await client.greet()
        for client in clients:
            client.writer.write(big(1, size)[:-1])
        # One connection holds the overdraft and lacks its last byte here; the others are not read.
        await until(lambda: memory.scarce and memory.waiting >= 1)
        held = sum(connection.exchange.buffer.end for connection in server.connections)
        assert held < 3 * size
        assert memory.used_bytes < 3_000_000
        small = await asyncio.open_connection(*server.address)
        small[1].write(metadata(5))
        assert correlation_id_of(await RawClient(*small).response()) == 5
        small[1].close()
        for client in clients:
            client.writer.write(b"\x00")
        for client in clients:
            assert correlation_id_of(await client.response()) == 1
        assert memory.used_bytes == 0 == memory.waiting


@on_both_loops
async def test_memory_comes_back_when_clients_go() -> None:
    memory = RequestMemory(500_000)
    async with serving(Echo().table(), memory=memory) as server:
        async with raw_client(server) as one, raw_client(server) as two:
            await one.greet()
            await two.greet()
            one.writer.write(big(1, 900_000)[:-1])
            two.writer.write(big(1, 900_000)[:-1])
            await until(lambda: memory.waiting == 1)
        await until(lambda: server.connection_stats.open == 0)
        assert memory.used_bytes == 0 == memory.waiting


@on_both_loops
async def test_a_flood_of_small_requests_needs_no_memory() -> None:
    memory = RequestMemory(1)
    async with serving(Echo().table(), memory=memory) as server, raw_client(server) as client:
        count = 2_000
        client.writer.write(b"".join(metadata(n) for n in range(count)))
        got = [correlation_id_of(await client.response()) for _ in range(count)]
        assert got == list(range(count))
        assert memory.used_bytes == 0


async def test_a_holder_that_is_too_slow_is_cut_off() -> None:
    clock = ManualClock()
    memory = RequestMemory(100_000)
    server = Server(Echo().table(), clock=clock, listener="X", memory=memory)
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as slow, raw_client(server) as other:
        await slow.greet()
        await other.greet()
        slow.writer.write(big(1, 900_000)[:-1])
        await until(lambda: memory.used_bytes >= 900_000)
        other.writer.write(big(1, 900_000))
        await until(lambda: memory.waiting == 1)
        clock.advance(OVERDRAFT_MS + 1)
        server._scan(10_000.0)
        assert await slow.closed() == b""
        assert correlation_id_of(await other.response()) == 1
    await server.close()


class Fed:
    """Notes that it may take memory, or has to go."""

    def __init__(self) -> None:
        self.closed = 0

    def feed(self) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closed += 1


async def test_the_overdraft_begins_when_it_is_granted() -> None:
    """A connection that waited for a minute has `OVERDRAFT_MS` for the rest of its request."""
    clock = ManualClock()
    memory = RequestMemory(1)
    holder, other = Fed(), Fed()
    memory.charge(1)
    assert memory.grant(holder, 1, clock.monotonic_ms())
    server = Server(Echo().table(), clock=clock, listener="X", memory=memory)
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as client:
        client.writer.write(big(1, 200_000)[:-1])
        async with asyncio.timeout(5.0):
            await until(lambda: memory.waiting == 1)
        assert not memory.grant(other, 1, clock.monotonic_ms())
        clock.advance(2 * OVERDRAFT_MS)
        memory.settle(holder)
        memory.cut_off_slow(clock.monotonic_ms() + 1.0)
        assert memory.cut_off == 0
        memory.cut_off_slow(clock.monotonic_ms() + OVERDRAFT_MS + 1.0)
        assert memory.cut_off == 1
    await server.close()
