"""Shell: Connections to the other replicas of the quorum, one per address.

This module does not retry: a request is answered or fails, and the core decides on the next step. A
name that does not resolve is an ordinary failure, so the core retries it indefinitely.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeVar

from metalog.quorum.core.voters import VoterEndpoint
from protocol.schema import Request, Response
from protocol.transport.client import Connection

R = TypeVar("R", bound=Response)


class Traffic(NamedTuple):
    """Traffic of all connections so far; bytes as in the streams."""

    requests: int = 0
    responses: int = 0
    bytes_out: int = 0
    bytes_in: int = 0

    def plus(self, connection: Connection) -> Traffic:
        return Traffic(
            self.requests + connection.requests,
            self.responses + connection.responses,
            self.bytes_out + connection.bytes_out,
            self.bytes_in + connection.bytes_in,
        )


class Peers:
    """Requests from this node to other replicas."""

    def __init__(self, client_id: str, timeout_ms: float) -> None:
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connections: dict[VoterEndpoint, Connection] = {}
        self._connecting: dict[VoterEndpoint, asyncio.Lock] = {}
        self._past = Traffic()

    @property
    def traffic(self) -> Traffic:
        found = self._past
        for connection in self._connections.values():
            found = found.plus(connection)
        return found

    async def request(
        self,
        to: VoterEndpoint,
        message: Request[R],
        *,
        wait_ms: float = 0.0,
        timeout_ms: float | None = None,
    ) -> R:
        """Send a request and wait for the answer.

        Args:
            wait_ms: how long the peer may hold back the answer.
            timeout_ms: replaces the default timeout for connecting, and for the answer beyond
                `wait_ms`.

        Raises:
            OSError: the connection failed or was lost.
            ApiError, ProtocolError: the answer is an error or invalid.
        """
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        connection = await self._connection(to, limit_ms)
        try:
            return await connection.request(message, limit_ms + wait_ms)
        except asyncio.CancelledError:
            # The caller has abandoned the request, perhaps because the peer hangs: the next one
            # uses a new connection.
            connection.abort()
            raise

    async def _connection(self, to: VoterEndpoint, timeout_ms: float) -> Connection:
        connection = self._connections.get(to)
        if connection is not None and not connection.is_closed:
            return connection
        async with self._connecting.setdefault(to, asyncio.Lock()):
            connection = self._connections.get(to)
            if connection is None or connection.is_closed:
                if connection is not None:
                    self._past = self._past.plus(self._connections.pop(to))
                connection = await Connection.connect(
                    to.host, to.port, self._client_id, timeout_ms, between_nodes=True
                )
                self._connections[to] = connection
        return connection

    async def close(self) -> None:
        self._past = self.traffic
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()
