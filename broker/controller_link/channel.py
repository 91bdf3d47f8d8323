"""Shell: Requests to the active controller, at its present address.

One connection, opened when first needed. It is dropped when it fails, when another node is known to
be the controller, or when the node behind it answers that it is not. `request` tries once.
`request_until` retries with a growing backoff, until the controller has answered or the time is up.

A broker has one channel for its heartbeats and another for everything else, so that no slow request
can delay a heartbeat; and one for each election that it forwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from broker.controller_link.producer_ids import ProducerIdBlock
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.schema import Request, Response
from protocol.transport.client import Connection
from protocol.transport.own_names import BROKER_SOFTWARE_NAME
from runtime.clock import Clock

BACK_OFF_MS: Final = 20.0
BACK_OFF_MAX_MS: Final = 1000.0
ALLOCATE_TIMEOUT_MS: Final = 5000.0

R = TypeVar("R", bound=Response)


class ControllerUnavailable(Exception):
    """No answer from an active controller; the text names the failed attempt."""


class ControllerChannel:
    """A connection to the active controller."""

    def __init__(
        self,
        endpoint: Callable[[], tuple[str, int] | None],
        *,
        client_id: str,
        clock: Clock,
        rng: random.Random,
        connect_timeout_ms: float = 10_000.0,
    ) -> None:
        """Set up without a connection. `endpoint` returns the active controller's address, None
        while there is no controller."""
        self._endpoint = endpoint
        self._client_id = client_id
        self._clock = clock
        self._rng = rng
        self._connect_timeout_ms = connect_timeout_ms
        self._connection: Connection | None = None
        self._connected_to: tuple[str, int] | None = None
        self._connecting = asyncio.Lock()
        self._dialling: tuple[tuple[str, int], asyncio.Task[Connection]] | None = None
        self._moved = asyncio.Event()
        self.moves = 0
        """Number of calls of `controller_moved` that found a known controller."""
        self._closed = False
        self._on_lost: Callable[[], None] | None = None

    def on_lost(self, fn: Callable[[], None]) -> None:
        """Register `fn` for the loss of the connection, with or without a request in flight: the
        controller may count it (kraftbox.broker.connection.loss.fence.ms)."""
        self._on_lost = fn

    async def request(
        self,
        message: Request[R],
        timeout_ms: float,
        *,
        version: int | None = None,
        if_offered: int | None = None,
    ) -> R:
        """Send a request once; in the version `if_offered` if the controller has it.

        Raises:
            ControllerUnavailable: no controller, no connection, no answer in time, or the node is
                not the active controller (any more).
            ApiError: UNSUPPORTED_VERSION, the controller has no version of the request.
        """
        connection = await self._connected(timeout_ms)
        if if_offered is not None and connection.offers(type(message), if_offered):
            version = if_offered
        try:
            response = await connection.request(message, timeout_ms, version=version)
        except (ProtocolError, OSError) as error:
            self._drop(connection)
            raise ControllerUnavailable(f"{type(error).__name__}: {error}") from error
        if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            self._drop(connection)
            raise ControllerUnavailable(f"{self._connected_to} is not the active controller")
        return response

    async def request_until(self, message: Request[R], deadline_ms: float) -> R:
        """Send a request until there is an answer or `deadline_ms` (monotonic) has come.

        Raises:
            ApiError: REQUEST_TIMED_OUT, with the last failure in its text.
        """
        pause_ms = BACK_OFF_MS
        while True:
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not answer in time")
            try:
                return await self.request(message, remaining_ms)
            except ControllerUnavailable as error:
                jittered_ms = pause_ms * self._rng.uniform(0.8, 1.2)
                if self._closed or self._clock.monotonic_ms() + jittered_ms >= deadline_ms:
                    raise ApiError(
                        ErrorCode.REQUEST_TIMED_OUT, f"The controller is not available: {error}"
                    ) from error
                await self.pause(jittered_ms)
                pause_ms = min(pause_ms * 2, BACK_OFF_MAX_MS)

    def controller_moved(self) -> None:
        """Note that another node may lead now. Requests to the old one, which may hang, are
        aborted, and callers in a backoff retry at once.

        While no leader is known the connection stays. The node behind it may still lead (this
        broker may have learned of it late), and it may count a closed connection as a death.
        """
        target = self._endpoint()
        if target is None:
            return
        connection = self._connection
        if connection is not None and self._connected_to != target:
            self._drop(connection)
        if self._dialling is not None and self._dialling[0] != target:
            self._dialling[1].cancel()
        self.moves += 1
        self._moved.set()

    @property
    def finalised_features(self) -> dict[str, int]:
        """The cluster's feature levels, as the connected controller reports them; empty without a
        connection."""
        connection = self._connection
        told = None if connection is None else connection.features
        if told is None:
            return {}
        return {one.name: one.max_version_level for one in told.finalized_features}

    async def pause(self, pause_ms: float) -> None:
        """Wait that long, or until a new controller is known."""
        self._moved.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000.0):
                await self._moved.wait()

    async def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self, timeout_ms: float) -> Connection:
        async with self._connecting:
            target = self._endpoint()
            connection = self._connection
            if (
                connection is not None
                and not connection.is_closed
                and target in (None, self._connected_to)
            ):
                return connection
            if self._closed or target is None:
                raise ControllerUnavailable("no active controller is known")
            if connection is not None:
                self._drop(connection)
            try:
                connection = await self._dial(target, min(timeout_ms, self._connect_timeout_ms))
            except (ApiError, ProtocolError, OSError) as error:
                raise ControllerUnavailable(
                    f"{target[0]}:{target[1]}: {type(error).__name__}: {error}"
                ) from error
            if self._closed:
                connection.abort()
                raise ControllerUnavailable("the channel was closed")
            self._connection, self._connected_to = connection, target
            connection.when_closed(partial(self._connection_ended, connection))
            return connection

    async def _dial(self, target: tuple[str, int], timeout_ms: float) -> Connection:
        dialling = asyncio.ensure_future(
            Connection.connect(
                *target,
                self._client_id,
                timeout_ms,
                software_name=BROKER_SOFTWARE_NAME,
                between_nodes=True,
            )
        )
        self._dialling = (target, dialling)
        try:
            return await dialling
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise ConnectionAbortedError("another controller is active") from None
        finally:
            self._dialling = None

    def _connection_ended(self, connection: Connection) -> None:
        # A connection that was dropped or closed from here is no longer in use.
        if self._connection is connection:
            self._connection = None
            if self._on_lost is not None:
                self._on_lost()

    def _drop(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
        connection.abort()


class ChannelPool:
    """A channel for each request that may wait for hours, while it is in flight.

    Responses come in the order of the requests, and five of them may wait: one long wait would
    block the others on its connection. A caller that is cancelled closes the connection, so that
    the controller notices. One unused channel is kept.
    """

    def __init__(self, make: Callable[[], ControllerChannel]) -> None:
        self._make = make
        # A dictionary as an ordered set: the order must not depend on addresses.
        self._used: dict[ControllerChannel, None] = {}
        self._idle: ControllerChannel | None = None
        self._closed = False

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[ControllerChannel]:
        """Provide a channel that no other caller uses."""
        channel, self._idle = self._idle or self._make(), None
        self._used[channel] = None
        try:
            yield channel
        except BaseException:
            self._used.pop(channel, None)
            await channel.close()
            raise
        self._used.pop(channel, None)
        if self._idle is None and not self._closed:
            self._idle = channel
        else:
            await channel.close()

    def controller_moved(self) -> None:
        """Notify all channels; see `ControllerChannel.controller_moved`."""
        for channel in (*self._used, *([self._idle] if self._idle else ())):
            channel.controller_moved()

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._closed = True
        idle, self._idle = self._idle, None
        for channel in (*self._used, *([idle] if idle else ())):
            await channel.close()


def producer_id_blocks(
    channel: ControllerChannel, node_id: int, broker_epoch: Callable[[], int], clock: Clock
) -> Callable[[], Coroutine[Any, Any, ProducerIdBlock]]:
    """Return a function that requests the next block from the controller; it raises ApiError if
    that fails."""

    async def allocate() -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=broker_epoch())
        deadline_ms = clock.monotonic_ms() + ALLOCATE_TIMEOUT_MS
        response = await channel.request_until(request, deadline_ms)
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), None)
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    return allocate
