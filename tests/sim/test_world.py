"""The simulated world itself: virtual time, in-memory network, equal trace for equal seed."""

from __future__ import annotations

import asyncio
import inspect
import random
from typing import Any

import pytest

from simulation.world.life import CURRENT_LIFE, Life
from simulation.world.loop import Deadlock, VirtualLoop
from simulation.world.network import CURRENT_HOST, Network

pytestmark = pytest.mark.sim


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def _world(seed: int) -> VirtualLoop:
    return VirtualLoop(Network(random.Random(seed)))


async def _echo_trace(loop: VirtualLoop) -> list[tuple[float, bytes]]:
    token = CURRENT_HOST.set("server")
    server = await loop.create_server(_Echo, "server", 0)
    CURRENT_HOST.reset(token)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("server", port)
    trace = []
    for number in range(20):
        writer.write(b"%d." % number)
        trace.append((loop.time(), await reader.readuntil(b".")))
    writer.close()
    await writer.wait_closed()
    server.close()
    return trace


def test_an_hour_passes_at_once() -> None:
    loop = _world(1)
    loop.run_world(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(3600)
    loop.close()


def test_a_wait_for_nothing_is_a_deadlock() -> None:
    loop = _world(1)
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_equal_seed_gives_equal_trace() -> None:
    traces = []
    for seed in (7, 7, 8):
        loop = _world(seed)
        traces.append(loop.run_world(_echo_trace(loop)))
        loop.close()
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]
    assert [data for _, data in traces[0]] == [b"%d." % n for n in range(20)]


def test_crashed_host_resets_its_peers_and_refuses_new_ones() -> None:
    loop = _world(3)

    async def scenario() -> None:
        token = CURRENT_HOST.set("server")
        server = await loop.create_server(_Echo, "server", 0)
        CURRENT_HOST.reset(token)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("server", port)
        loop.network.crash_host("server")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", port)
        writer.close()

    loop.run_world(scenario())
    loop.close()


def test_a_reader_that_pauses_pauses_the_writer() -> None:
    loop = _world(4)
    events: list[str] = []

    class _Writer(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def pause_writing(self) -> None:
            events.append("pause")

        def resume_writing(self) -> None:
            events.append("resume")

    class _Sink(asyncio.Protocol):
        def __init__(self) -> None:
            self.taken = 0

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            transport.pause_reading()

        def data_received(self, data: bytes) -> None:
            self.taken += len(data)

    async def scenario() -> int:
        sink = _Sink()
        server = await loop.create_server(lambda: sink, "server", 9000)
        transport, _ = await loop.create_connection(_Writer, "server", 9000)
        for _ in range(3):
            transport.write(bytes(50_000))
        await asyncio.sleep(1)
        assert sink.taken == 0
        assert events == ["pause"]
        sink.transport.resume_reading()
        await asyncio.sleep(1)
        server.close()
        return sink.taken

    assert loop.run_world(scenario()) == 150_000
    assert events == ["pause", "resume"]
    loop.close()


def test_a_cut_link_delays_and_then_delivers() -> None:
    loop = _world(5)

    async def scenario() -> float:
        token = CURRENT_HOST.set("server")
        await loop.create_server(_Echo, "server", 9000)
        CURRENT_HOST.reset(token)
        reader, writer = await asyncio.open_connection("server", 9000)
        loop.network.link("client", "server").cut = True
        writer.write(b"x")
        loop.call_later(5, setattr, loop.network.link("client", "server"), "cut", False)
        await reader.readexactly(1)
        healed_s = loop.time()
        writer.close()
        await writer.wait_closed()
        return healed_s

    assert 5 <= loop.run_world(scenario()) < 6
    loop.close()


def test_a_paused_life_misses_time_and_then_gets_all_at_once() -> None:
    loop = _world(1)
    life = Life("server", 1)
    seen: list[tuple[str, float]] = []

    def note(what: str) -> None:
        seen.append((what, loop.time()))

    async def story() -> None:
        token = CURRENT_LIFE.set(life)
        for due_s, what in ((1, "one"), (2, "two"), (9, "nine")):
            loop.call_later(due_s, note, what)
        loop.call_soon(note, "soon")
        CURRENT_LIFE.reset(token)
        loop.pause_life(life)
        await asyncio.sleep(5)
        assert seen == []
        loop.resume_life(life)
        await asyncio.sleep(5)
        loop.pause_life(life)

    loop.run_world(story())
    assert [what for what, _ in seen] == ["soon", "one", "two", "nine"]
    assert [at for _, at in seen] == pytest.approx([5, 5, 5, 9])
    loop.close()


def test_a_connection_to_a_paused_life_is_accepted_and_served_when_it_goes_on() -> None:
    loop = _world(1)
    life = Life("server", 1)

    async def story() -> float:
        host, mine = CURRENT_HOST.set("server"), CURRENT_LIFE.set(life)
        server = await loop.create_server(_Echo, "server", 1000)
        CURRENT_HOST.reset(host)
        CURRENT_LIFE.reset(mine)
        loop.pause_life(life)
        reader, writer = await asyncio.open_connection("server", 1000)
        writer.write(b"hello.")
        loop.call_later(3, loop.resume_life, life)
        assert await reader.readuntil(b".") == b"hello."
        writer.close()
        server.close()
        return loop.time()

    assert 3 < loop.run_world(story()) < 3.1
    loop.close()


def _state(task: asyncio.Task[None]) -> str:
    coro: Any = task.get_coro()
    return inspect.getcoroutinestate(coro)


def test_span_that_begins_at_the_end_is_closed() -> None:
    """A task that another one's clean-up starts never runs, and is not reported as forgotten."""
    loop = _world(1)
    begun: list[asyncio.Task[None]] = []

    async def late() -> None:
        await asyncio.sleep(3600)

    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            begun.append(loop.create_task(late()))

    async def main() -> None:
        loop.create_task(waits())
        await asyncio.sleep(0)

    loop.run_world(main())
    assert _state(begun[0]) == inspect.CORO_CLOSED
    loop.close()
