"""Shell: Sender of queued items to other brokers, over the connections of one purpose.

The user of the sender builds a request from items and applies its response. It receives an item
back once at most: as refused, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar

from broker.peers.peer import Peer
from broker.peers.pool import PeerPool
from broker.peers.queue import NEVER_MS, PeerQueues
from protocol.errors import ApiError, ProtocolError
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor

T = TypeVar("T", bound=Hashable)

_log = get_logger("broker.peers")

LOG_INTERVAL_MS = 10_000


class PeerSender(Generic[T]):
    """Queues of one purpose with their requests. Create it inside a running loop."""

    def __init__(
        self,
        pool: PeerPool,
        purpose: str,
        queues: PeerQueues[T],
        *,
        exchange: Callable[[Peer, Sequence[T]], Awaitable[Collection[T]]],
        refused: Callable[[T, Exception], None],
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        """Set up a sender without items.

        Args:
            exchange: sends one request with these items over the connection, with a timeout, and
                applies the response. Returns the items that the broker could not serve yet. Raises
                OSError, ProtocolError or ApiError if there is no valid response.
            refused: called for an item that the queue does not keep: its request failed and has no
                retry, or its deadline has passed (TimeoutError).
        """
        self._pool = pool
        self._purpose = purpose
        self._queues = queues
        self._exchange = exchange
        self._refused = refused
        self._clock = clock
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._queued = False
        self._closed = False
        self._quiet = RateLimited(clock, LOG_INTERVAL_MS)

    def add(self, broker_id: int, item: T, size_bytes: int, deadline_ms: float = NEVER_MS) -> bool:
        """Queue an item; it is sent in the next event-loop iteration, or after the request in
        flight. Returns: False if the broker's queue is full."""
        added = not self._closed and self._queues.add(broker_id, item, size_bytes, deadline_ms)
        if added:
            self._pump_soon()
        return added

    def withdraw(self, broker_id: int, item: T) -> bool:
        """Remove an item, whose answer is then ignored. Returns: whether it was queued."""
        return self._queues.withdraw(broker_id, item)

    def registered(self, broker_id: int) -> None:
        """End the backoff of a broker that has registered again."""
        self._queues.registered(broker_id)
        self._pump_soon()

    def close(self) -> None:
        """Send nothing any more. Items in the queues are dropped."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pump_soon(self) -> None:
        if not self._queued and not self._closed:
            self._queued = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send all requests that are due, and set the timer."""
        self._queued = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        now_ms = self._clock.monotonic_ms()
        for _, item in self._queues.overdue(now_ms):
            self._refused(item, TimeoutError("the deadline has passed"))
        for broker_id in self._queues.ready(now_ms):
            items = self._queues.next_request(broker_id, now_ms)
            name = f"{self._purpose} to broker {broker_id}"
            self._supervisor.spawn(name, self._send(broker_id, items))
        wake_ms = self._queues.wake_ms()
        if wake_ms is not None:
            delay_ms = max(1.0, wake_ms - now_ms)
            self._timer = self._loop.call_later(delay_ms / 1000.0, self._pump)

    async def _send(self, broker_id: int, items: Sequence[T]) -> None:
        failure: Exception | None = None
        again: Collection[T] = ()
        try:
            again = await self._exchange(self._pool.peer(broker_id, self._purpose), items)
        except (OSError, ProtocolError, ApiError) as error:
            failure = error
            held_back = self._quiet.admit(str(broker_id))
            if held_back is not None:
                _log.warning(
                    "request to another broker failed",
                    purpose=self._purpose,
                    broker=broker_id,
                    error=str(error),
                    held_back=held_back,
                )
        except Exception as error:  # noqa: BLE001 - one broker's bytes must not stop the others
            failure = error
            self._supervisor.survive(self._purpose, error, broker=broker_id)
        now_ms = self._clock.monotonic_ms()
        if failure is None:
            left = self._queues.answered(broker_id, now_ms, again)
            failure = ConnectionError("the broker could not serve the item")
        else:
            left = self._queues.failed(broker_id, now_ms)
        for item in left:
            self._refused(item, failure)
        self._pump_soon()
