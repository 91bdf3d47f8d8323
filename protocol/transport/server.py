"""Shell: A listener that accepts connections, closes idle ones, and shuts down gracefully.

One timer scans all connections; no connection has a timer of its own. `connection.py` handles the
bytes of a connection, and `dispatch.py` maps requests to handlers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from protocol.transport.admission import ConnectionGate
from protocol.transport.connection import ServerConnection
from protocol.transport.decode_queue import DecodeQueue
from protocol.transport.dispatch import ANONYMOUS, HandlerTable
from protocol.transport.limits import ServerLimits
from protocol.transport.listener_log import ListenerLog
from protocol.transport.memory import RequestMemory
from protocol.transport.receive_buffer import BufferSpace
from protocol.transport.request_flow import RequestFlow
from protocol.transport.stats import ConnectionStats
from protocol.transport.turns import CROWD, Turns
from runtime.clock import Clock
from runtime.listening import cannot_listen
from runtime.slices import SLICE_MS
from runtime.tasks import Supervisor

SCAN_MS_MAX = 10_000.0
SCANNED_PER_TURN = 500
STRAIN_MS = SLICE_MS / 2
"""Processor time that the requests of one connection take of an iteration that is too long."""
STRAINED_S = 1.0
"""Time for which event-loop iterations are kept short after a long one."""
LINGER_MS = 5_000.0
"""Time in which the client of a closed connection must read the bytes written to it."""

ACCEPT_TURNS = 5
"""Event-loop iterations from an accepted socket to its refusal, and one to spare."""


class Server:
    """One listener with its connections.

    Args:
        supervisor: receives a handler's broken invariant, and stops the node.
        gate: limits the connections; listeners may share it. Without it there is no limit.
        memory: limits the memory of requests; listeners may share it. Without it there is no limit.
        on_admit: returns the reason for the refusal of a connection, or None.
        for_nodes: detect a peer whose machine has failed (`half_open`).
    """

    def __init__(
        self,
        handlers: HandlerTable,
        *,
        clock: Clock,
        listener: str,
        limits: ServerLimits | None = None,
        supervisor: Supervisor | None = None,
        principal: str = ANONYMOUS,
        gate: ConnectionGate | None = None,
        memory: RequestMemory | None = None,
        on_admit: Callable[[ServerConnection], str | None] | None = None,
        for_nodes: bool = False,
    ) -> None:
        self.handlers = handlers
        self.clock = clock
        self.listener = listener
        self.limits = limits if limits is not None else ServerLimits()
        self.supervisor = supervisor if supervisor is not None else Supervisor()
        self.connection_stats = ConnectionStats()
        self.gate = gate if gate is not None else ConnectionGate()
        self.gate.listening(listener)
        self.memory = memory if memory is not None else RequestMemory()
        self.space = BufferSpace(self.memory, self.limits.receive_buffer_bytes)
        self.log = ListenerLog(listener, clock)
        self.flow = RequestFlow(
            handlers,
            clock=clock,
            supervisor=self.supervisor,
            listener=listener,
            principal=principal,
            log=self.log,
        )
        self.turns = Turns(_call_soon, clock.monotonic_ms)
        self.decode_queue = DecodeQueue(_call_soon, clock.monotonic_ms)
        self.crowded = False
        """True if event-loop iterations are kept short: there are many connections, or one of them
        used a whole iteration lately."""
        self._strain_timer: asyncio.TimerHandle | None = None
        self.cpu_s: Callable[[], float] = time.thread_time
        """Returns the processor time of the calling thread, in seconds."""
        self._measured_from_s: float | None = None
        self._on_admit = on_admit
        self.for_nodes = for_nodes
        self._connections: dict[int, ServerConnection] = {}
        self._gate_timer: asyncio.TimerHandle | None = None
        self._next_id = 0
        self._sockets: list[asyncio.AbstractServer] = []
        self._scan_timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._closing = False
        self.address: tuple[str, int] = ("", 0)

    # --- life ----------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Bind and listen; an empty host means all interfaces.

        Returns:
            The bound host and port.

        Raises:
            OSError: the address cannot be bound.
        """
        await self.bind(host, port)
        await self.listen()
        return self.address

    async def bind(self, host: str, port: int) -> None:
        """Bind the address, which refuses connections until `listen`.

        Raises:
            OSError: another socket is bound to it.
        """
        first = await self._bind(host or "0.0.0.0", port)
        self.address = (host, first)
        if not host:
            # Also bind the same port for IPv6, if the machine has it.
            with contextlib.suppress(OSError):
                await self._bind("::", first)

    async def listen(self) -> None:
        """Accept connections at the bound address.

        Raises:
            OSError: another socket was bound to the address, too, and listens already.
        """
        if self._closing:
            return
        for listening in self._sockets:
            try:
                await listening.start_serving()
            except OSError as error:
                raise cannot_listen(*self.address, error) from error
        if not self._closing:
            self._schedule_scan()

    async def _bind(self, host: str, port: int) -> int:
        loop = asyncio.get_running_loop()
        try:
            listening = await loop.create_server(
                self._accept,
                host,
                port,
                backlog=self.limits.backlog,
                reuse_address=True,
                start_serving=False,
            )
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        self._sockets.append(listening)
        return int(listening.sockets[0].getsockname()[1])

    async def close(self, grace_ms: float = 5_000.0) -> None:
        """Stop accepting, complete the pending requests, then close the connections.

        Args:
            grace_ms: connections with replies that are pending after this time are aborted.
        """
        self._closing = True
        for listening in self._sockets:
            listening.close()
        for timer in (self._scan_timer, self._gate_timer, self._strain_timer):
            if timer is not None:
                timer.cancel()
        for connection in list(self._connections.values()):
            connection.drain()
        await self._wait_empty(grace_ms)
        for connection in list(self._connections.values()):
            connection.abort()
        await self._wait_empty(grace_ms)
        for listening in self._sockets:
            await listening.wait_closed()
        self._sockets.clear()
        # asyncio creates a connection some iterations after it accepts the socket. It must be
        # created and refused, or its socket would stay open.
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)

    async def _wait_empty(self, wait_ms: float) -> None:
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=wait_ms / 1000.0)
            self._empty = None

    # --- connections ---------------------------------------------------------------------------

    @property
    def connections(self) -> Iterable[ServerConnection]:
        """The open connections."""
        return self._connections.values()

    def _accept(self) -> ServerConnection:
        self._next_id += 1
        return ServerConnection(self, self._next_id)

    def admit(self, connection: ServerConnection) -> str | None:
        """Pass a new connection to the gate, which calls its `begin` now or later.

        Returns: the reason for a refusal, or None.
        """
        refusal = self._refusal(connection)
        if refusal is not None:
            self.connection_stats.refused += 1
            return refusal
        self._connections[connection.id] = connection
        self._count_crowd()
        self._wake_gate()
        return None

    def _refusal(self, connection: ServerConnection) -> str | None:
        if self._closing:
            return "the listener is closing"
        refusal = self._on_admit(connection) if self._on_admit is not None else None
        return refusal or self.gate.enter(connection, self.clock.monotonic_ms())

    def admitted(self) -> None:
        """Count a connection that is served from now on."""
        self.connection_stats.accepted += 1
        self.connection_stats.open += 1

    def forget(self, connection: ServerConnection, *, admitted: bool) -> None:
        """Remove a connection that has ended; the gate may then admit a waiting one."""
        if self._connections.pop(connection.id, None) is None:
            return
        self._count_crowd()
        if admitted:
            self.connection_stats.open -= 1
        self.gate.leave(connection)
        self._pump_gate()
        if not self._connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def overran(self, serve_rest: Callable[[], None]) -> None:
        """Serve the rest of a connection's requests in another iteration: they took this one.

        Iterations are kept short if the processor time of the rest shows that the requests are to
        blame. Time in which another program had the processor proves nothing against them.
        """
        self.turns.begin()
        self.turns.wait(partial(self._measure, serve_rest))
        from_s = self._measured_from_s
        if from_s is not None and (self.cpu_s() - from_s) * 1000.0 >= STRAIN_MS:
            self._strain()

    def _measure(self, serve_rest: Callable[[], None]) -> None:
        self._measured_from_s = self.cpu_s()
        try:
            serve_rest()
        finally:
            self._measured_from_s = None

    def _strain(self) -> None:
        if self._strain_timer is None and not self._closing:
            loop = asyncio.get_running_loop()
            self._strain_timer = loop.call_later(STRAINED_S, self._relax)
            self.crowded = True

    def _relax(self) -> None:
        self._strain_timer = None
        self._count_crowd()

    def _count_crowd(self) -> None:
        self.crowded = len(self._connections) > CROWD or self._strain_timer is not None

    def _pump_gate(self) -> None:
        if not self._closing and self.gate.waiting:
            self.gate.pump(self.clock.monotonic_ms())
            self._wake_gate()

    def _wake_gate(self) -> None:
        """Set the timer for the gate's next work."""
        wake_ms = self.gate.wake_ms()
        if wake_ms is None:
            return
        if self._gate_timer is not None:
            self._gate_timer.cancel()
        wait_ms = max(wake_ms - self.clock.monotonic_ms(), 0.0)
        loop = asyncio.get_running_loop()
        self._gate_timer = loop.call_later(wait_ms / 1000.0, self._pump_gate)

    def _schedule_scan(self) -> None:
        idle_ms = self.limits.idle_ms
        every_ms = min(idle_ms / 4, SCAN_MS_MAX) if idle_ms > 0 else SCAN_MS_MAX
        loop = asyncio.get_running_loop()
        self._scan_timer = loop.call_later(every_ms / 1000.0, self._scan, every_ms)

    def _scan(self, every_ms: float) -> None:
        self.memory.cut_off_slow(self.clock.monotonic_ms())
        self._scan_some(iter(list(self._connections.values())), every_ms)
        self._schedule_scan()

    def _scan_some(self, left: Iterator[ServerConnection], every_ms: float) -> None:
        """Scan some connections, and the rest in later event-loop iterations."""
        now_ms = self.clock.monotonic_ms()
        scanned = 0
        for connection in islice(left, SCANNED_PER_TURN):
            scanned += 1
            self._look_after(connection, connection.quiet_ms(now_ms), every_ms)
        if scanned == SCANNED_PER_TURN:
            asyncio.get_running_loop().call_soon(self._scan_some, left, every_ms)

    def _look_after(self, connection: ServerConnection, quiet_ms: float, every_ms: float) -> None:
        idle_ms = self.limits.idle_ms
        if connection.is_closing:
            if quiet_ms > LINGER_MS:
                connection.abort()
        elif 0 < idle_ms < quiet_ms:
            self.connection_stats.closed_idle += 1
            connection.abort()
        elif quiet_ms > every_ms:
            connection.give_memory_back()


def _call_soon(function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(function)
