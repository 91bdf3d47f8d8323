"""A TCP proxy in front of one controller that knows who connects, so that single links can be cut.

Every client of the protocol names itself in its first request (`raft-client-2`, `controller-2`,
`broker-4-heartbeat`); the node id in that name identifies the link of a connection. A cut link
drops its connections and lets new ones hang, as a network without a route does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from testkit.processes.loop_thread import LoopThread
from testkit.processes.wire_record import Watcher

ANYBODY = -1
_NODE = re.compile(rb"(?:raft-client|broker|controller)-(\d+)")


class LinkProxies(LoopThread):
    """One thread that runs all proxies of a cluster; use as a context manager."""

    def __init__(self) -> None:
        super().__init__("link-proxies")
        self._cut: set[tuple[int, int]] = set()
        self._healed = asyncio.Event()
        self._links: dict[asyncio.Task[None], tuple[int, int]] = {}

    def add(
        self, node_id: int, target: tuple[str, int], watch: Callable[[], Watcher] | None = None
    ) -> int:
        """Forward a new port on 127.0.0.1 to a node. Returns: the port.

        `watch` is called for each connection and returns a Watcher of its bytes.
        """
        return self.listen(
            lambda reader, writer: self._serve(node_id, target, watch, reader, writer)
        )

    def cut(self, source: int, to: int) -> None:
        """Cut the connections that `source` makes to `to`, and those it tries to make."""
        self.call(lambda: self._do_cut(source, to))

    def cut_off(self, node_id: int, others: list[int]) -> None:
        """Cut a node off from the others, in both directions."""
        for other in others:
            if other != node_id:
                self.cut(node_id, other)
                self.cut(other, node_id)

    def heal(self) -> None:
        def work() -> None:
            self._cut.clear()
            self._healed.set()

        self.call(work)

    async def pass_on(
        self,
        first: bytes,
        to: int,
        asked: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        told: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        watcher: Watcher,
    ) -> None:
        """Forward one connection to node `to`, whose first request has been read, until it ends."""
        (reader, writer), (back, upstream) = asked, told
        upstream.write(first)
        watcher.asked(first)
        await asyncio.gather(
            _pump(reader, upstream, watcher.asked), _pump(back, writer, watcher.answered)
        )

    def _do_cut(self, source: int, to: int) -> None:
        self._cut.add((source, to))
        self._healed.clear()
        for task, link in list(self._links.items()):
            if link == (source, to):
                task.cancel()

    async def _serve(
        self,
        to: int,
        target: tuple[str, int],
        watch: Callable[[], Watcher] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        upstream: asyncio.StreamWriter | None = None
        try:
            size = await reader.readexactly(4)
            first = size + await reader.readexactly(int.from_bytes(size, "big"))
            link = self._links[task] = (who(first), to)
            if link in self._cut:
                await self._healed.wait()
            back, upstream = await asyncio.open_connection(*target)
            watcher = Watcher() if watch is None else watch()
            await self.pass_on(first, to, (reader, writer), (back, upstream), watcher)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._links.pop(task, None)
            for side in (writer, upstream):
                if side is not None:
                    side.transport.abort()


def who(frame: bytes) -> int:
    """Return the node id in the client id of a request's header (its first 14 + n bytes)."""
    length = int.from_bytes(frame[12:14], "big", signed=True)
    found = _NODE.match(frame[14 : 14 + max(length, 0)])
    return ANYBODY if found is None else int(found[1])


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Callable[[bytes], None]
) -> None:
    while data := await reader.read(65536):
        seen(data)
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("the other side has closed")
