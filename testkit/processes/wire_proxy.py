"""A TCP proxy in front of nodes that forwards whole frames of Kafka's protocol.

A `WireRule` decides about the frames of all connections: it forwards, changes, holds or cuts them.
A `Watcher` observes the bytes of one connection. Single links can be cut: every client of the
protocol names itself in its first request (`raft-client-2`, `controller-2`, `broker-4-heartbeat`),
and the node id in that name identifies the link of a connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from testkit.processes.loop_thread import LoopThread
from testkit.processes.wire_record import Watcher

NO_NODE = -1
"""The source of a connection whose client id names no node."""
_NODE = re.compile(rb"(?:raft-client|broker|controller)-(\d+)")

Forward: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Writes a frame to the other side, and waits while that side does not read."""


@dataclass(eq=False)
class WireConnection:
    """One connection of a client to a node."""

    source: int
    """The node that connects, by the client id of the first request, or NO_NODE."""
    client_id: bytes
    """The client id of the first request; empty if it has none."""
    node: int
    """The node that the proxy forwards to."""
    abort: Callable[[], None]
    """Ends the connection on the client's side."""


class WireRule:
    """Decides about frames; this base class forwards all of them.

    A frame includes its four bytes of length. A method that raises ConnectionError ends the
    connection. All methods run in the proxies' thread.
    """

    def opened(self, connection: WireConnection) -> None:
        """Handle a connection before its first request is forwarded."""

    def closed(self, connection: WireConnection) -> None:
        """Handle the end of a connection."""

    async def request(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        """Handle a request of the client."""
        await forward(frame)

    async def response(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        """Handle a response of the node."""
        await forward(frame)


class WireProxies(LoopThread):
    """One thread that runs the proxies of some nodes; use as a context manager."""

    def __init__(self, rule: WireRule | None = None) -> None:
        super().__init__("wire-proxies")
        self._rule = WireRule() if rule is None else rule
        self._cut: set[tuple[int, int]] = set()
        self._healed = asyncio.Event()
        self._links: dict[asyncio.Task[None], tuple[int, int]] = {}

    def add(
        self, node_id: int, target: tuple[str, int], watch: Callable[[], Watcher] | None = None
    ) -> int:
        """Forward a new port on 127.0.0.1 to a node.

        Args:
            node_id: the node, as rules see it.
            target: host and port of the node's listener; it need not listen yet.
            watch: called for each connection; returns the observer of its bytes.

        Returns:
            The port.
        """
        return self.listen(
            lambda reader, writer: self._serve(node_id, target, watch, reader, writer)
        )

    def cut(self, source: int, to: int) -> None:
        """Cut the link: its connections end and new ones hang, as in a network without a route."""

        def work() -> None:
            self._cut.add((source, to))
            self._healed.clear()
            for task, link in list(self._links.items()):
                if link == (source, to):
                    task.cancel()

        self.call(work)

    def cut_off(self, node_id: int, others: list[int]) -> None:
        """Cut a node off from the others, in both directions."""
        for other in others:
            if other != node_id:
                self.cut(node_id, other)
                self.cut(other, node_id)

    def heal(self) -> None:
        """Restore all links, so that connections which hang continue."""

        def work() -> None:
            self._cut.clear()
            self._healed.set()

        self.call(work)

    async def _serve(
        self,
        node_id: int,
        target: tuple[str, int],
        watch: Callable[[], Watcher] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        upstream: asyncio.StreamWriter | None = None
        connection: WireConnection | None = None
        try:
            first = await _frame(reader)
            client_id = _client_id(first)
            source = _source(client_id)
            self._links[task] = source, node_id
            if (source, node_id) in self._cut:
                await self._healed.wait()
            back, upstream = await asyncio.open_connection(*target)
            connection = WireConnection(source, client_id, node_id, writer.transport.abort)
            watcher = Watcher() if watch is None else watch()
            self._rule.opened(connection)
            await asyncio.gather(
                self._requests(connection, first, reader, _forward(upstream, watcher.asked)),
                self._responses(connection, back, _forward(writer, watcher.answered)),
            )
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._links.pop(task, None)
            if connection is not None:
                self._rule.closed(connection)
            for side in (writer, upstream):
                if side is not None:
                    side.transport.abort()

    async def _requests(
        self,
        connection: WireConnection,
        first: bytes,
        reader: asyncio.StreamReader,
        forward: Forward,
    ) -> None:
        await self._rule.request(connection, first, forward)
        while True:
            await self._rule.request(connection, await _frame(reader), forward)

    async def _responses(
        self, connection: WireConnection, reader: asyncio.StreamReader, forward: Forward
    ) -> None:
        while True:
            await self._rule.response(connection, await _frame(reader), forward)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def _forward(writer: asyncio.StreamWriter, observe: Callable[[bytes], None]) -> Forward:
    async def forward(frame: bytes) -> None:
        observe(frame)
        writer.write(frame)
        await writer.drain()

    return forward


def _client_id(frame: bytes) -> bytes:
    """Return the client id in a request's header, which begins after length, key and version."""
    length = int.from_bytes(frame[12:14], "big", signed=True)
    return frame[14 : 14 + max(length, 0)]


def _source(client_id: bytes) -> int:
    found = _NODE.match(client_id)
    return NO_NODE if found is None else int(found[1])
