"""A TCP proxy that cuts connections, for tests of a client's retries.

Every connection is cut after a number of replies drawn from a seeded generator, and the reply at
which it is cut is dropped: the broker has appended, but the client never gets the response. In this
case a producer without idempotence writes twice.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Self


class FlakyProxy:
    """Listens on 127.0.0.1 and forwards to `target`; use as a context manager.

    `arm(n)` lets the next `n` connections that last long enough be cut; `cuts` counts the cuts so
    far. The bound lets a client's final read pass undisturbed.
    """

    def __init__(self, seed: int, replies_min: int = 10, replies_max: int = 20) -> None:
        self._rng = random.Random(seed)
        self._replies = (replies_min, replies_max)
        self._target: tuple[str, int] | None = None
        self._cuts_left = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flaky-proxy")
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def forward_to(self, host: str, port: int) -> None:
        """Forward connections to this address from now on."""
        self._target = (host, port)

    def arm(self, cuts: int) -> None:
        """Cut that many connections from now on; 0 disarms."""
        self._cuts_left = cuts

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            assert self._target is not None
            back, upstream = await asyncio.open_connection(*self._target)
            requests = asyncio.create_task(self._pump(reader, upstream))
            self._tasks.add(requests)
            requests.add_done_callback(self._tasks.discard)
            await self._replies_until_cut(back, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for side in (writer, upstream):
                if side is not None:
                    side.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _replies_until_cut(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        left = self._rng.randint(*self._replies)
        while True:
            size = await reader.readexactly(4)
            reply = await reader.readexactly(int.from_bytes(size, "big"))
            left -= 1
            if left <= 0 < self._cuts_left:
                self._cuts_left -= 1
                self.cuts += 1
                return
            writer.write(size + reply)
            await writer.drain()
