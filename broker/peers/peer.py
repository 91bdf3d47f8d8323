"""Shell: A connection to another broker, made for the first request and bound to a registration.

A broker answers the requests of one connection in order, and a fetch waits for bytes. So requests
of different purposes use connections of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from protocol.errors import ProtocolError
from protocol.schema import Request, Response
from protocol.transport.client import Connection
from protocol.transport.own_names import BROKER_SOFTWARE_NAME

CONNECT_TIMEOUT_MS: Final = 10_000.0

R = TypeVar("R", bound=Response)
Address: TypeAlias = tuple[str, int]


class Registration(NamedTuple):
    """An unfenced broker's address on a listener, and its broker epoch: one incarnation."""

    address: Address
    epoch: int


class Peer:
    """A connection to one broker, one at a time; after it has ended, the next request makes a new
    one."""

    def __init__(self, registration: Callable[[], Registration | None], client_id: str) -> None:
        """Set up without a connection. `registration` returns the broker's present registration,
        None while it has none."""
        self._registration = registration
        self._client_id = client_id
        self._connection: Connection | None = None
        self._connected_to: Registration | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def request(self, message: Request[R], timeout_ms: float) -> R:
        """Send a request and return the response, whose error codes are not checked.

        Raises:
            OSError: the broker is not registered or not reachable, or the connection ended.
            ProtocolError: the response is invalid; the connection is closed.
            ApiError: the request cannot be sent in a version that the broker supports.
        """
        connection = await self._connected()
        try:
            return await connection.request(message, timeout_ms)
        except ProtocolError:
            connection.abort()
            raise

    async def _connected(self) -> Connection:
        async with self._connecting:
            connection = self._connection
            if connection is not None and not connection.is_closed:
                return connection
            target = self._registration()
            if target is None or self._closed:
                raise ConnectionError("the broker's address is not known")
            connection = await Connection.connect(
                *target.address,
                self._client_id,
                CONNECT_TIMEOUT_MS,
                software_name=BROKER_SOFTWARE_NAME,
                between_nodes=True,
            )
            if self._closed or self._registration() != target:
                connection.abort()
                raise ConnectionResetError("closed while it connected")
            self._connection, self._connected_to = connection, target
            return connection

    def published(self) -> None:
        """Drop a connection to an earlier incarnation or address of the broker. Call it after each
        image that may have changed registrations."""
        if self._connection is not None and self._registration() != self._connected_to:
            self.drop()

    def drop(self) -> None:
        """Close the connection: requests in flight fail, and the next request connects again."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def close(self) -> None:
        """Close the connection for good: requests fail, now and later."""
        self._closed = True
        self.drop()
