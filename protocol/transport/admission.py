"""Limits on connections, shared by the listeners of a role.

Kafka's limits with Kafka's reactions:

- `max.connections`, of the broker and of one listener: new connections wait until others have
  gone. The protected listener, which brokers talk over, is not bound by the broker's limit: instead
  of its connection the quietest one of another listener has to go.
- `max.connection.creation.rate`, likewise: new connections wait their turn. The broker's rate does
  not delay the protected listener.
- `max.connections.per.ip` with its overrides: what is over it is closed at once.
- `connection_creation_rate` of an address (a client quota): what is over it waits, then is closed,
  so that a client which reconnects at once is slowed down.

Kafka leaves waiting connections with the kernel. An event loop has no portable way to stop
accepting, so here they are accepted and not read, which looks the same to the client; at most
`waiting_max` of them (socket.listen.backlog.size, the room they would have there), and whatever
comes on top is closed. So is what comes when `descriptors_max` connections are open: before the
process runs out of descriptors, which would stop the log's files too, not only the sockets.

A gate that is `held` lets all connections wait, however many, until `release`: a broker that starts
listens before it can answer.

Time comes in as an argument; the owner calls `pump` at `wake_ms` and whenever someone left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from runtime.rates import WINDOW_COUNT, WINDOW_MS, WindowedRate

UNLIMITED = 2**31 - 1
ADDRESSES_MAX = 10_000
"""Addresses whose creation rates are remembered; idle ones are forgotten beyond that."""


class Guest(Protocol):
    """A connection, as far as it matters here."""

    @property
    def listener(self) -> str: ...
    @property
    def peer_host(self) -> str: ...

    def begin(self) -> None:
        """Its wait is over: it is served."""

    def close(self, reason: str) -> None: ...

    def quiet_ms(self, now_ms: float) -> float: ...


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What `listener.name.<name>.` may set for one listener."""

    connections_max: int = UNLIMITED
    rate_max: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """See the module. Rates are connections per second."""

    connections_max: int = UNLIMITED
    per_ip_max: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    rate_max: int = UNLIMITED
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected: str | None = None
    waiting_max: int = 50
    descriptors_max: int = UNLIMITED
    window_count: int = WINDOW_COUNT
    window_ms: float = WINDOW_MS


class _Queue:
    """Connections of one listener that wait, in order, and when the first may go on.

    has_room: False if the first one waits until a connection leaves, at no time of its own.
    """

    __slots__ = ("due_ms", "guests", "has_room")

    def __init__(self) -> None:
        self.guests: deque[Guest] = deque()
        self.due_ms: float | None = None
        self.has_room = True


class ConnectionGate:
    """Counts the connections of several listeners and says who may come in.

    `ip_rate(host)` is the quota of an address in connections per second, None without one.
    """

    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        *,
        ip_rate: Callable[[str], float | None] | None = None,
    ) -> None:
        self.limits = limits if limits is not None else ConnectionLimits()
        self._ip_rate = ip_rate
        self._held = False
        self._served: dict[Guest, None] = {}
        self._per_ip: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self._queues: dict[str, _Queue] = {}
        self._doomed: dict[Guest, float] = {}
        self._rate = self._new_rate()
        self._listener_rates: dict[str, WindowedRate] = {}
        self._ip_rates: dict[str, WindowedRate] = {}

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(self.limits.window_count, self.limits.window_ms)

    @property
    def waiting(self) -> int:
        """Connections accepted and not served yet, or never to be."""
        return sum(len(queue.guests) for queue in self._queues.values()) + len(self._doomed)

    @property
    def served(self) -> int:
        """Connections that are served."""
        return len(self._served)

    def listening(self, listener: str) -> None:
        """A listener is opened: with more than one, the protected one is protected."""
        self._per_listener.setdefault(listener, 0)

    def set_limits(self, limits: ConnectionLimits, now_ms: float) -> None:
        """Hold connections to other limits from now on; none that is served is closed for it."""
        self.limits = limits
        self.pump(now_ms)

    def hold(self) -> None:
        """Serve no new connection until `release`."""
        self._held = True

    def release(self, now_ms: float) -> None:
        """Serve the connections that waited, and all that come from now on."""
        self._held = False
        self.pump(now_ms)

    # --- coming and going -----------------------------------------------------------------------

    def enter(self, guest: Guest, now_ms: float) -> str | None:
        """Someone connected. Returns why not, or None: it is served (`begin`) now or later."""
        host = guest.peer_host
        refusal = self._refusal(host)
        if refusal is not None:
            return refusal
        self._per_ip[host] = self._per_ip.get(host, 0) + 1
        self._queue(guest.listener).guests.append(guest)
        self._advance(guest.listener, now_ms)
        return None

    def _refusal(self, host: str) -> str | None:
        limits = self.limits
        allowed = limits.per_ip_overrides.get(host, limits.per_ip_max)
        if self._per_ip.get(host, 0) >= allowed:
            return f"more than {allowed} connections from one address"
        waiting = self.waiting
        if waiting >= limits.waiting_max and not self._held:
            return "too many connections wait to be served"
        if len(self._served) + waiting >= limits.descriptors_max:
            return "no file descriptors are left for connections"
        return None

    def leave(self, guest: Guest) -> None:
        """A connection is gone; one that was refused is not known and changes nothing."""
        if guest in self._served:
            del self._served[guest]
            self._per_listener[guest.listener] -= 1
        elif guest in self._doomed:
            del self._doomed[guest]
        elif not self._leave_queue(guest):
            return
        host = guest.peer_host
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]

    def _leave_queue(self, guest: Guest) -> bool:
        queue = self._queues.get(guest.listener)
        if queue is None or guest not in queue.guests:
            return False
        if queue.guests[0] is guest:
            queue.due_ms = None
            queue.has_room = True
        queue.guests.remove(guest)
        return True

    def pump(self, now_ms: float) -> None:
        """Serve and close whose time has come."""
        for listener in list(self._queues):
            self._advance(listener, now_ms)
        for guest in [guest for guest, due_ms in self._doomed.items() if due_ms <= now_ms]:
            guest.close("its address opens connections too fast")

    def wake_ms(self) -> float | None:
        """When `pump` has something to do that no leaving connection will announce."""
        times = list(self._doomed.values())
        for queue in self._queues.values():
            if queue.due_ms is not None and queue.has_room and not self._held:
                times.append(queue.due_ms)
        return min(times, default=None)

    # --- one listener's queue --------------------------------------------------------------------

    def _queue(self, listener: str) -> _Queue:
        queue = self._queues.get(listener)
        if queue is None:
            self.listening(listener)
            queue = self._queues[listener] = _Queue()
        return queue

    def _advance(self, listener: str, now_ms: float) -> None:
        queue = self._queues[listener]
        while queue.guests and not self._held:
            if queue.due_ms is None:
                queue.due_ms = now_ms + self._throttle_ms(listener, now_ms)
            queue.has_room = queue.due_ms > now_ms or self._make_room(listener, now_ms)
            if queue.due_ms > now_ms or not queue.has_room:
                return
            guest = queue.guests.popleft()
            queue.due_ms = None
            self._serve(guest, now_ms)

    def _serve(self, guest: Guest, now_ms: float) -> None:
        delay_ms = self._ip_delay_ms(guest.peer_host, now_ms)
        if delay_ms > 0.0:
            self._doomed[guest] = now_ms + delay_ms
            return
        self._served[guest] = None
        self._per_listener[guest.listener] += 1
        guest.begin()

    def _is_protected(self, listener: str) -> bool:
        return listener == self.limits.protected and len(self._per_listener) > 1

    def _make_room(self, listener: str, now_ms: float) -> bool:
        """Whether one more may be served there."""
        limits = self.limits
        of_listener = limits.listeners.get(listener)
        if of_listener and self._per_listener[listener] >= of_listener.connections_max:
            return False
        if len(self._served) < limits.connections_max:
            return True
        if not self._is_protected(listener):
            return False
        others = [guest for guest in self._served if guest.listener != listener]
        if others:
            quietest = max(others, key=lambda guest: guest.quiet_ms(now_ms))
            quietest.close("its place is needed by another broker")
            self.leave(quietest)
        return True

    # --- rates -----------------------------------------------------------------------------------

    def _throttle_ms(self, listener: str, now_ms: float) -> float:
        limits = self.limits
        throttle_ms = 0.0
        of_listener = limits.listeners.get(listener)
        if of_listener and of_listener.rate_max < UNLIMITED:
            rate = self._listener_rates.get(listener)
            if rate is None:
                rate = self._listener_rates[listener] = self._new_rate()
            throttle_ms = self._record(rate, of_listener.rate_max, now_ms)
        if limits.rate_max < UNLIMITED and not self._is_protected(listener):
            throttle_ms = max(throttle_ms, self._record(self._rate, limits.rate_max, now_ms))
        return throttle_ms

    def _record(self, rate: WindowedRate, allowed: float, now_ms: float) -> float:
        rate.record(1.0, now_ms)
        return min(rate.excess_ms(allowed, now_ms), self.limits.window_ms)

    def _ip_delay_ms(self, host: str, now_ms: float) -> float:
        allowed = self._ip_rate(host) if self._ip_rate is not None else None
        if allowed is None:
            return 0.0
        rate = self._ip_rates.get(host)
        if rate is None:
            if len(self._ip_rates) >= ADDRESSES_MAX:
                self._forget_idle_addresses(now_ms)
            rate = self._ip_rates[host] = self._new_rate()
        delay_ms = self._record(rate, allowed, now_ms)
        if delay_ms > 0.0:
            # What is refused does not count, or an eager client would never come in again.
            rate.record(-1.0, now_ms)
        return delay_ms

    def _forget_idle_addresses(self, now_ms: float) -> None:
        kept = {host: rate for host, rate in self._ip_rates.items() if not rate.is_idle(now_ms)}
        self._ip_rates = kept if len(kept) < ADDRESSES_MAX else {}
