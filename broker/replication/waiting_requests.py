"""Shell: The purgatory on the event loop: one timer, one wake-up per loop turn.

The purgatory says when its next deadline is; this keeps one timer of the loop at that moment.
Fetches that became ready are finished in one callback of the next turn, so that ten appends in
one turn cost one read, and no read happens in the middle of an append. A crowd of them is finished
in several turns: an append that a thousand wait for must not have the loop for a tenth of a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker.replication.purgatory import Purgatory, Wait
from protocol.transport.dispatch import Body
from protocol.transport.turns import TURN_MS
from runtime.clock import Clock


class Peer(Protocol):
    """The connection on whose behalf a request waits."""

    @property
    def id(self) -> int: ...

    def add_close_callback(self, callback: Callable[[], None], /) -> None:
        """Calls `callback` when the connection is gone; at once if it is already."""


class WaitingRequests:
    """The purgatory of a running broker."""

    def __init__(self, clock: Clock) -> None:
        self.purgatory = Purgatory()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = float("inf")
        self._peers: set[int] = set()
        self._ready: list[Callable[[], None]] = []
        self._closed = False

    def new_future(self) -> asyncio.Future[Body]:
        """For the answer of a request that waits."""
        return self._loop.create_future()

    def hold(self, wait: Wait, deadline_ms: float, peer: Peer | None) -> None:
        """Puts `wait` into the purgatory until `deadline_ms` or the end of `peer`.

        A request that was in a worker's hands may come here after its connection has gone: then
        the wait is dropped before this returns.
        """
        if peer is None:
            self.purgatory.add(wait, deadline_ms)
        else:
            self.purgatory.add(wait, deadline_ms, peer.id)
            if peer.id not in self._peers:
                self._peers.add(peer.id)
                peer.add_close_callback(lambda: self._peer_closed(peer.id))
        if wait.waiting and deadline_ms < self._timer_due_ms:
            self._arm()

    def soon(self, finish: Callable[[], None]) -> None:
        """Calls `finish` in the next turn of the loop."""
        if not self._ready:
            self._loop.call_soon(self._finish_ready)
        self._ready.append(finish)

    def close(self) -> None:
        """Stops the timer. What still waits ends with its connection."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish_ready(self) -> None:
        ready, self._ready = deque(self._ready), []
        ends_ms = self._clock.monotonic_ms() + TURN_MS
        try:
            while ready:
                ready.popleft()()
                if ready and self._clock.monotonic_ms() >= ends_ms:
                    break
        finally:
            # One that failed must not take those behind it along.
            if ready:
                if not self._ready:
                    self._loop.call_soon(self._finish_ready)
                self._ready[:0] = ready

    def _peer_closed(self, peer_id: int) -> None:
        self._peers.discard(peer_id)
        self.purgatory.drop_owner(peer_id)

    def _arm(self) -> None:
        due_ms = self.purgatory.next_deadline_ms()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is None or self._closed:
            self._timer_due_ms = float("inf")
            return
        self._timer_due_ms = due_ms
        delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1000.0, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._timer_due_ms = float("inf")
        try:
            self.purgatory.expire(self._clock.monotonic_ms())
        finally:
            self._arm()
