"""Shell: Purgatory on the event loop: one timer, and one wake-up per event-loop iteration.

The purgatory computes its next deadline; this module keeps one timer of the loop at that time.
Fetches that became ready are finished in one callback of the next iteration. So ten appends in one
iteration cost one read, and no read happens in the middle of an append. A large number of fetches
is finished in several iterations: an append that a thousand fetches wait for must not occupy the
loop for a tenth of a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker.replication.waiting.purgatory import Purgatory, Wait
from protocol.transport.dispatch import Body
from protocol.transport.turns import TURN_MS
from runtime.clock import Clock


class Peer(Protocol):
    """The connection on whose behalf a request waits."""

    @property
    def id(self) -> int: ...

    def add_close_callback(self, callback: Callable[[], None], /) -> None:
        """Call `callback` when the connection has closed, at once if it already has."""


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
        """Return a future for the answer of a request that waits."""
        return self._loop.create_future()

    def hold(self, wait: Wait, deadline_ms: float, peer: Peer | None) -> None:
        """Put `wait` into the purgatory until `deadline_ms` or the end of `peer`.

        The connection may have closed while a worker processed the request: then the wait is
        dropped before this returns.
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
        """Call `finish` in the next event-loop iteration."""
        if not self._ready:
            self._loop.call_soon(self._finish_ready)
        self._ready.append(finish)

    def close(self) -> None:
        """Stop the timer. Waits that are left end with their connection."""
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
            # If one callback failed, the remaining ones must still run.
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
