"""Links and their faults: each has exactly its named effect on a connection."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simulation.world.links import LATE_MS_MAX, Link, Trouble
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network

pytestmark = pytest.mark.sim

FRAME = bytes(range(100)) * 3


class End(asyncio.Protocol):
    """A recorder of received data, with times."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.at_s: list[float] = []
        self.pauses = 0
        self.lost: list[Exception | None] = []
        self._loop = asyncio.get_running_loop()

    @property
    def got(self) -> bytes:
        return b"".join(self.chunks)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.at_s.append(self._loop.time())

    def pause_writing(self) -> None:
        self.pauses += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Pair:
    """A connection from `client` to `server`, with a link each way."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.network = loop.network
        self.there = loop.network.link("client", "server")
        self.back = loop.network.link("server", "client")

    async def connect(self) -> None:
        servers: list[End] = []

        def accept() -> End:
            servers.append(End())
            return servers[-1]

        token = CURRENT_HOST.set("server")
        await self.loop.create_server(accept, "server", 9000)
        CURRENT_HOST.reset(token)
        _, self.client = await self.loop.create_connection(End, "server", 9000)
        self.server = servers[0]

    def lay(self, **wanted: Any) -> Trouble:
        trouble = Trouble(random.Random(5), **wanted)
        self.network.lay(trouble, [self.there, self.back])
        return trouble

    def lift(self, trouble: Trouble) -> None:
        self.network.lift(trouble, [self.there, self.back])


def played(story: Callable[[Pair], Awaitable[None]]) -> None:
    loop = VirtualLoop(Network(random.Random(3)))

    async def main() -> None:
        pair = Pair(loop)
        await pair.connect()
        await story(pair)

    try:
        loop.run_world(main())
        assert not loop.failures
    finally:
        loop.close()


def test_a_reset_leaves_half_a_frame_at_the_receiver() -> None:
    async def story(pair: Pair) -> None:
        pair.lay(reset_chance=1.0)
        pair.client.transport.write(FRAME)
        pair.client.transport.write(FRAME)
        await asyncio.sleep(1)
        got = pair.server.got
        assert 0 < len(got) < len(FRAME) and FRAME.startswith(got)
        assert [type(one) for one in pair.server.lost] == [ConnectionResetError]
        assert [type(one) for one in pair.client.lost] == [ConnectionResetError]

    played(story)


def test_pieces_are_the_whole_in_order() -> None:
    async def story(pair: Pair) -> None:
        trouble = pair.lay(pieces_max=12)
        for _ in range(5):
            pair.client.transport.write(FRAME)
        await asyncio.sleep(1)
        assert pair.server.got == FRAME * 5
        assert len(pair.server.chunks) > 10
        assert min(len(one) for one in pair.server.chunks) < 8
        assert trouble.hits["pieces"] == 5

    played(story)


def test_lateness_has_a_heavy_tail_and_keeps_the_order() -> None:
    link = Link(1.0, 1.0, troubles=[Trouble(random.Random(1), late_ms=20.0)])
    waits = [1000 * link.wait_s(0.0, 10) for _ in range(2000)]
    assert min(waits) >= 20 and max(waits) <= LATE_MS_MAX
    assert statistics.median(waits) < 60 < 500 < max(waits)

    async def story(pair: Pair) -> None:
        pair.lay(late_ms=20.0)
        for number in range(50):
            pair.client.transport.write(b"%02d" % number)
        await asyncio.sleep(5)
        assert pair.server.got == b"".join(b"%02d" % n for n in range(50))

    played(story)


def test_a_slow_link_takes_its_time_and_is_free_again_when_it_is_over() -> None:
    async def story(pair: Pair) -> None:
        trouble = pair.lay(bytes_per_s=1000.0)
        began_s = pair.loop.time()
        for _ in range(10):
            pair.client.transport.write(bytes(500))
        await asyncio.sleep(2.02)
        assert len(pair.server.got) == 2000
        assert pair.server.at_s[3] - began_s == pytest.approx(2.0, abs=0.01)
        pair.lift(trouble)
        await asyncio.sleep(0.01)
        assert len(pair.server.got) == 5000

    played(story)


def test_a_full_buffer_makes_the_sender_wait_until_it_is_read() -> None:
    async def story(pair: Pair) -> None:
        reader, writer = await asyncio.open_connection("server", 9000)
        trouble = pair.lay(window_bytes=0, bytes_per_s=1000.0)
        began_s = pair.loop.time()
        writer.write(bytes(500))
        await writer.drain()
        assert pair.loop.time() - began_s == pytest.approx(0.5, abs=0.01)
        assert trouble.hits["blocked"] == 1
        pair.lift(trouble)
        writer.write(bytes(500))
        await writer.drain()
        assert pair.loop.time() - began_s == pytest.approx(0.5, abs=0.01)
        assert not reader.at_eof()
        writer.close()
        await asyncio.sleep(0.1)

    played(story)


@pytest.mark.parametrize("here", [True, False])
def test_bytes_of_a_stalled_connection_arrive_after_its_sender_timed_out(here: bool) -> None:
    async def story(pair: Pair) -> None:
        hold = Trouble(random.Random(1))
        sender, other = (pair.client, pair.server) if here else (pair.server, pair.client)
        pair.network.stall("client", ["server"], hold, here=here)
        sender.transport.write(FRAME)
        other.transport.write(FRAME)
        await asyncio.sleep(1)
        assert sender.chunks == [FRAME] and not other.chunks
        pair.network.give_up(hold)
        await asyncio.sleep(1)
        assert [type(one) for one in sender.lost] == [TimeoutError] and not other.lost
        pair.network.go_on(hold)
        await asyncio.sleep(1)
        assert other.chunks == [FRAME] and other.lost == [None]
        assert hold.hits["held"] > 1

    played(story)


def test_stalled_connection_without_timeout_continues() -> None:
    async def story(pair: Pair) -> None:
        hold = Trouble(random.Random(1))
        pair.network.stall("client", ["server"], hold, here=True)
        pair.client.transport.write(FRAME)
        await asyncio.sleep(1)
        pair.network.go_on(hold)
        await asyncio.sleep(1)
        pair.client.transport.write(FRAME)
        await asyncio.sleep(1)
        assert pair.server.chunks == [FRAME, FRAME] and not pair.server.lost

    played(story)


@pytest.mark.parametrize("end", ["crash", "abort"])
def test_bytes_of_a_stalled_connection_outlive_its_sender(end: str) -> None:
    async def story(pair: Pair) -> None:
        hold = Trouble(random.Random(1))
        pair.network.stall("client", ["server"], hold, here=True)
        pair.client.transport.write(FRAME)
        if end == "crash":
            pair.network.crash_host("client")
        else:
            pair.client.transport.abort()
        await asyncio.sleep(1)
        assert not pair.server.chunks and not pair.server.lost
        pair.network.go_on(hold)
        await asyncio.sleep(1)
        assert pair.server.chunks == [FRAME] and pair.server.lost == [None]

    played(story)


@pytest.mark.parametrize("here", [True, False])
def test_half_open_connection_is_lost_at_one_side(here: bool) -> None:
    async def story(pair: Pair) -> None:
        hole = Trouble(random.Random(1))
        assert pair.network.half_open("client", ["server"], hole, here=here) == 1
        gone, fooled = (pair.client, pair.server) if here else (pair.server, pair.client)
        await asyncio.sleep(0.1)
        assert [type(one) for one in gone.lost] == [TimeoutError]
        fooled.transport.write(FRAME)
        await asyncio.sleep(30)
        assert not fooled.lost and not gone.chunks
        assert hole.hits["vanished"] == 1
        pair.network.fill(hole)
        await asyncio.sleep(0.1)
        assert [type(one) for one in fooled.lost] == [ConnectionResetError]

    played(story)


def test_idle_side_of_a_half_open_connection_is_reset_when_packets_pass_again() -> None:
    async def story(pair: Pair) -> None:
        hole = Trouble(random.Random(1))
        pair.network.half_open("client", ["server"], hole, here=True)
        await asyncio.sleep(30)
        assert not pair.server.lost
        pair.network.fill(hole)
        await asyncio.sleep(0.1)
        assert [type(one) for one in pair.server.lost] == [ConnectionResetError]

    played(story)


def test_a_host_without_power_neither_resets_nor_refuses() -> None:
    async def story(pair: Pair) -> None:
        hole = Trouble(random.Random(1))
        pair.network.crash_host("server", hole)
        pair.client.transport.write(FRAME)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pair.loop.create_connection(End, "server", 9000), 10)
        assert not pair.client.lost
        pair.network.fill(hole)
        with pytest.raises(ConnectionRefusedError):
            await pair.loop.create_connection(End, "server", 9000)
        await asyncio.sleep(0.1)
        assert [type(one) for one in pair.client.lost] == [ConnectionResetError]

    played(story)


def test_bytes_held_back_by_a_cut_stay_ahead_of_later_ones() -> None:
    async def story(pair: Pair) -> None:
        pair.there.cut = True
        pair.client.transport.write(b"first")
        await asyncio.sleep(0.05)
        pair.there.cut = False
        pair.client.transport.write(b"second")
        await asyncio.sleep(1)
        assert pair.server.got == b"firstsecond"

    played(story)


def test_a_tail_leaves_most_delays_short() -> None:
    link = Link(1.0, 200.0, tail=1.0)
    delays = [1000 * link.delay_s(random.Random(seed)) for seed in range(1000)]
    assert min(delays) >= 1 and max(delays) == 200
    assert statistics.median(delays) < 3
