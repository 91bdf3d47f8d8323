"""Shell: Connections of one client by address; callers share one that is being opened.

An attempt to connect has a time limit of its own, and each caller waits for it no longer than its
own timeout: neither a hasty caller nor a patient one decides for the others.
"""

from __future__ import annotations

import asyncio

from client.addresses import Address
from client.errors import ClientClosed
from protocol.transport.client import Connection, ConnectionLost
from protocol.transport.node_identity import NodeIdentity

CONNECT_TIMEOUT_MS = 5_000.0


class ConnectionPool:
    """The open connections of a client, and those being opened."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._tasks: dict[Address, asyncio.Task[Connection]] = {}
        self._closed = False

    def live(self) -> list[Address]:
        """Return the addresses whose last attempt to connect succeeded."""
        return [
            address
            for address, task in self._tasks.items()
            if task.done() and not task.cancelled() and task.exception() is None
        ]

    def has(self, connecting: asyncio.Task[Connection]) -> bool:
        """Return whether this attempt is still the newest one to its address."""
        return connecting in self._tasks.values()

    def begin(self, address: Address, expected: NodeIdentity | None) -> asyncio.Task[Connection]:
        """Return the task of the connection to an address; begin one if no connection is open.

        Raises ClientClosed after `close`.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        task = self._tasks.get(address)
        if task is not None and task.done():
            failed = task.cancelled() or task.exception() is not None
            if failed or task.result().is_closed:
                task = None
        if task is None:
            connecting = Connection.connect(
                *address, self._client_id, CONNECT_TIMEOUT_MS, expected=expected
            )
            task = asyncio.get_running_loop().create_task(connecting)
            # All callers may have stopped waiting when it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._tasks[address] = task
        return task

    def discard(self) -> None:
        """Abort all connections, including those being opened."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                task.result().abort()

    async def close(self) -> None:
        """Close all connections, including those being opened, and open no others."""
        self._closed = True
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Connection):
                await result.close()


async def opened(connecting: asyncio.Task[Connection], timeout_ms: float) -> Connection:
    """Wait for a connection of a pool.

    Raises ConnectionLost if it is not open in time, or if the pool is discarded or closed before,
    and the errors of `Connection.connect`.
    """
    if connecting.done() and not connecting.cancelled():
        return connecting.result()
    # A cancelled caller must not cancel the connection that others wait for.
    await asyncio.wait([connecting], timeout=timeout_ms / 1000.0)
    if not connecting.done():
        raise ConnectionLost(f"no connection after {timeout_ms:.0f} ms")
    if connecting.cancelled():
        raise ConnectionLost("the connection was closed while it was being opened")
    return connecting.result()
