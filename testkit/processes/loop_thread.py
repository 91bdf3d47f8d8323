"""An event loop in a thread of its own: servers for tests that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

CALL_S = 10.0

T = TypeVar("T")


class LoopThread:
    """The loop runs while the context is open; tasks that are left at the end are cancelled."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Callable[[], T]) -> T:
        """Call `work` in the loop's thread. Returns: its result."""

        async def run() -> T:
            return work()

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a short coroutine in the loop's thread to its end. Returns: its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    def listen(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
    ) -> int:
        """Serve connections on a new port of 127.0.0.1. Returns: the port."""

        async def start() -> int:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return self.wait_for(start())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        left = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        # Their connections are closed one loop iteration after they were aborted.
        await asyncio.sleep(0)
