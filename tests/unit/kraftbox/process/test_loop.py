"""A process that is cut off from the network and reconnected."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import sys
from typing import Any

import pytest

from kraftbox.process.loop import CuttableLoop, tcp_sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this")


class Echo(asyncio.Protocol):
    """An echo server that counts connections and their ends."""

    made = 0
    lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Echo.made += 1
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        Echo.lost += 1


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(text)
    return await reader.read(100)


async def scenario(kind: type[CuttableLoop] = CuttableLoop) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, kind)
    Echo.made = Echo.lost = 0
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await ask(reader, writer, b"before") == b"before"

    loop.cut_off()
    loop.cut_off()  # a second call has no effect
    # Neither an answer nor an end: the other side is silent.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ask(reader, writer, b"into the void")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asyncio.open_connection("127.0.0.1", port)
    # From outside, too: the first packet of a connection is dropped.
    with socket.socket() as stranger:
        stranger.setblocking(False)
        stranger.connect_ex(("127.0.0.1", port))
        await asyncio.sleep(0.2)
        assert Echo.made == 1

    waiting = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))
    await asyncio.sleep(0)
    loop.reconnect()
    loop.reconnect()
    async with asyncio.timeout(10):
        # The old connection is reset, the new one works.
        with pytest.raises(ConnectionError):
            while await ask(reader, writer, b"x"):
                pass
            raise ConnectionResetError("it ended cleanly")
        new_reader, new_writer = await waiting
        assert await ask(new_reader, new_writer, b"after") == b"after"
    writer.close()
    new_writer.close()
    server.close()
    await server.wait_closed()


def test_nothing_passes_while_it_is_cut_off() -> None:
    with asyncio.Runner(loop_factory=CuttableLoop) as runner:
        runner.run(scenario())


def test_so_it_is_where_there_is_no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    spec = importlib.util.find_spec("kraftbox.process.loop")
    assert spec is not None and spec.loader is not None
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    assert issubclass(without.CuttableLoop, asyncio.SelectorEventLoop)
    with asyncio.Runner(loop_factory=without.CuttableLoop) as runner:
        runner.run(scenario(without.CuttableLoop))


def test_only_tcp_sockets_are_touched_and_none_is_closed() -> None:
    here, there = socket.socketpair()
    with here, there, socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        numbers = [found.fileno() for found in tcp_sockets()]
        assert tcp.fileno() in numbers
        assert not {here.fileno(), there.fileno(), udp.fileno()} & set(numbers)
        tcp.getsockname()
