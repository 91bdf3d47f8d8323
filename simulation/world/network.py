"""An in-memory network: hosts, links with delay, cuts and resets.

A connection is two `Pipe`s, one each way. Bytes written arrive after the link's delay, in order.
A receiver that paused reading lets the sender's buffer grow, and the sender's protocol is told to
pause as a socket would tell it. Which host a connection starts from is a context variable
(`CURRENT_HOST`): tasks and callbacks inherit it, so the node code needs to know nothing.

Every delay comes from the one `random.Random` handed in: equal seed, equal network.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from simulation.world.life import life_of

CURRENT_HOST: contextvars.ContextVar[str] = contextvars.ContextVar("current_host", default="client")

HIGH_WATER_BYTES = 64 * 1024
LOW_WATER_BYTES = 16 * 1024
SEGMENT_BYTES_MAX = 1 << 20

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""})


@dataclass
class Link:
    """What the network does to bytes between two hosts, one way."""

    delay_ms_min: float = 0.05
    delay_ms_max: float = 0.5
    cuts: int = 0
    """How many hold it cut now."""
    late_chance: float = 0.0
    late_ms: float = 0.0
    """One chunk in so many takes up to so much longer, and all behind it in its connection."""
    rng: random.Random | None = None
    """The link's own chance; None: the network's, which all such links share."""
    held: int = 0
    """How often a cut kept something from passing."""

    @property
    def cut(self) -> bool:
        """Set it to hold the link alone."""
        return self.cuts > 0

    @cut.setter
    def cut(self, cut: bool) -> None:
        self.cuts = int(cut)


class ListeningSocket:
    """What `Server.sockets` holds: enough to ask for the bound address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        """The bound (host, port)."""
        return self._address


class MemoryServer(asyncio.AbstractServer):
    """A listener; stands where asyncio's Server stands."""

    def __init__(self, network: Network, factory: Any, host: str, address: tuple[str, int]) -> None:
        self.network = network
        self.factory = factory
        self.host = host
        self.address = address
        self.context = contextvars.copy_context()
        self.sockets = [ListeningSocket(address)]
        self._closed = network.loop.create_future()

    def close(self) -> None:
        """Stop accepting; connections that exist go on."""
        self.network.forget(self)
        if not self._closed.done():
            self._closed.set_result(None)

    def is_serving(self) -> bool:
        """True until closed."""
        return not self._closed.done()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that serves."""
        loop: asyncio.AbstractEventLoop = self.network.loop
        return loop

    async def serve_forever(self) -> None:
        """Until closed."""
        await self._closed

    async def start_serving(self) -> None:
        """Serving begins with the bind."""

    async def wait_closed(self) -> None:
        """Wait for `close`."""
        await self._closed


@dataclass
class _End:
    """One end of a connection: the protocol there, and what travels towards it."""

    host: str
    address: tuple[str, int]
    context: contextvars.Context
    protocol: Any = None
    transport: MemoryTransport | None = None
    inbox: deque[bytes] = field(default_factory=deque)
    inbox_bytes: int = 0
    eof_pending: bool = False
    reading: bool = True
    last_due_s: float = 0.0
    lost: bool = False


class MemoryTransport(asyncio.Transport):
    """The transport that the protocol at one end holds."""

    def __init__(self, network: Network, near: _End, far: _End) -> None:
        super().__init__(
            {"peername": far.address, "sockname": near.address, "socket": None, "sslcontext": None}
        )
        self._network = network
        self._near = near
        self._far = far
        self._closing = False
        self._unacked_bytes = 0
        self._high = HIGH_WATER_BYTES
        self._low = LOW_WATER_BYTES
        self._protocol_paused = False

    def get_protocol(self) -> Any:
        """The protocol at this end."""
        return self._near.protocol

    def set_protocol(self, protocol: Any) -> None:
        """Replace the protocol at this end."""
        self._near.protocol = protocol

    def is_closing(self) -> bool:
        """True once close or abort was called, or the peer's reset arrived."""
        return self._closing

    def pause_reading(self) -> None:
        """Leave arriving bytes in the inbox."""
        self._near.reading = False

    def resume_reading(self) -> None:
        """Deliver what waits in the inbox, one turn later."""
        if not self._near.reading and not self._closing:
            self._near.reading = True
            self._network.loop.call_soon(
                self._network.drain, self._near, self._far, context=self._near.context
            )

    def is_reading(self) -> bool:
        """False while paused."""
        return self._near.reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bytes unread by the peer at which the protocol is paused and resumed."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """(low, high) in bytes."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Bytes written that the peer has not read."""
        return self._unacked_bytes

    def write(self, data: Any) -> None:
        """Send a copy of `data` (the caller may reuse its buffer)."""
        if self._closing or self._near.lost or not data:
            return
        chunk = bytes(data)
        self._unacked_bytes += len(chunk)
        self._network.send(self._near, self._far, chunk)
        if self._unacked_bytes > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self._near.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send the parts as one."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Half-closed connections are not modelled."""
        return False

    def acknowledged(self, size: int) -> None:
        """The peer's protocol took `size` bytes."""
        self._unacked_bytes -= size
        if self._protocol_paused and self._unacked_bytes <= self._low and not self._near.lost:
            self._protocol_paused = False
            self._network.loop.call_soon(
                self._near.protocol.resume_writing, context=self._near.context
            )

    def close(self) -> None:
        """Close after what was written has been delivered."""
        if not self._closing:
            self._closing = True
            self._network.finish(self._near, self._far)

    def abort(self) -> None:
        """Close at once; the peer sees a reset."""
        self._closing = True
        self._network.reset(self._near, self._far)


class Network:
    """Hosts, listeners and connections of one world."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._listeners: dict[tuple[str, int], MemoryServer] = {}
        self._next_port: dict[str, int] = {}
        self._connections: dict[int, tuple[_End, _End]] = {}
        self._next_connection = 0
        self._links: dict[tuple[str, str], Link] = {}
        self.default_link = Link()
        self.loop: Any = None
        self.on_send: Callable[[str, str, bytes], None] = lambda source, target, data: None
        """Sees every message as it is put on the wire: (source host, target host, bytes)."""
        self.on_deliver: Callable[[str, str, bytes], None] = lambda source, target, data: None
        """Sees every message as it reaches the target's inbox."""
        self.rng_of: Callable[[str, str], random.Random] | None = None
        """Where set, the chance of the link from one host to another."""

    def attach(self, loop: Any) -> None:
        """Called once by the loop that this network serves."""
        self.loop = loop

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another; change it to inject faults."""
        key = (source, target)
        if key not in self._links:
            default = self.default_link
            rng = None if self.rng_of is None else self.rng_of(source, target)
            self._links[key] = replace(default, held=0, rng=rng)
        return self._links[key]

    def crash_host(self, host: str) -> None:
        """The host is gone: listeners vanish, peers see resets, its own protocols hear nothing."""
        for server in [s for s in self._listeners.values() if s.host == host]:
            self.forget(server)
        for key, (near, far) in list(self._connections.items()):
            if near.lost and far.lost:
                del self._connections[key]
                continue
            for end, other in ((near, far), (far, near)):
                if end.host == host:
                    end.lost = True
                    if end.transport is not None:
                        end.transport._closing = True
                    self._lose_later(other, ConnectionResetError("peer host crashed"), end.host)

    def listen(self, factory: Any, host: str, port: int) -> MemoryServer:
        """Bind; raises OSError when the address is taken."""
        name = CURRENT_HOST.get() if host in _LOOPBACK_NAMES else host
        if port == 0:
            port = self._next_port.get(name, 20_000)
            self._next_port[name] = port + 1
        if (name, port) in self._listeners:
            raise OSError(98, f"address already in use: {name}:{port}")
        bound_host = host if host not in ("", "0.0.0.0", "::") else name
        server = MemoryServer(self, factory, name, (bound_host, port))
        self._listeners[(name, port)] = server
        return server

    def forget(self, server: MemoryServer) -> None:
        """Take a listener out."""
        key = (server.host, server.address[1])
        if self._listeners.get(key) is server:
            del self._listeners[key]

    async def connect(self, factory: Any, host: str, port: int) -> tuple[Any, Any]:
        """Connect from the current host.

        Raises ConnectionRefusedError; hangs like a real one while the link is cut.
        """
        source = CURRENT_HOST.get()
        target = source if host in _LOOPBACK_NAMES else host
        await self._travel(source, target)
        server = self._listeners.get((target, port))
        if server is None and host in _LOOPBACK_NAMES:
            server = self._only_listener(port)
        if server is None:
            raise ConnectionRefusedError(111, f"connect to {host}:{port} refused")
        port_here = self._next_port.get(source, 20_000)
        self._next_port[source] = port_here + 1
        client = _End(source, (source, port_here), contextvars.copy_context())
        remote = _End(server.host, server.address, server.context)
        self._connections[self._next_connection] = (client, remote)
        self._next_connection += 1
        client.protocol = factory()
        client.transport = MemoryTransport(self, client, remote)
        remote.transport = MemoryTransport(self, remote, client)
        life = life_of(server.context)
        if life is not None and life.parked is not None:
            # The kernel accepts for a process that is paused; it hears of it when it goes on.
            self.loop.call_soon(self._accept, server, remote, context=server.context.copy())
        else:
            self._accept(server, remote)
        client.protocol.connection_made(client.transport)
        return client.transport, client.protocol

    def _accept(self, server: MemoryServer, remote: _End) -> None:
        if not remote.lost:
            remote.protocol = server.context.run(server.factory)
            server.context.copy().run(remote.protocol.connection_made, remote.transport)

    def _only_listener(self, port: int) -> MemoryServer | None:
        """A client that says localhost means whoever listens on that port in this world."""
        found = [server for (_, p), server in self._listeners.items() if p == port]
        return found[0] if len(found) == 1 else None

    async def _travel(self, source: str, target: str) -> None:
        # Polling costs nothing in virtual time, and a healed link needs to tell nobody.
        there, back = self.link(source, target), self.link(target, source)
        while there.cut or back.cut:
            there.held += 1
            await asyncio.sleep(0.05)
        await asyncio.sleep(self._delay_s(source, target))

    def _delay_s(self, source: str, target: str) -> float:
        link = self.link(source, target)
        rng = link.rng or self._rng
        delay_ms = rng.uniform(link.delay_ms_min, link.delay_ms_max)
        if link.late_chance and rng.random() < link.late_chance:
            delay_ms += rng.uniform(0, link.late_ms)
        return float(delay_ms / 1000)

    def _due_s(self, source: _End, target: _End) -> float:
        arrival_s = self.loop.time() + self._delay_s(source.host, target.host)
        due: float = max(target.last_due_s, arrival_s)
        target.last_due_s = due
        return due

    def send(self, source: _End, target: _End, chunk: bytes) -> None:
        """Put bytes on the wire; they arrive in order after the link's delay."""
        self.on_send(source.host, target.host, chunk)
        self._deliver_at(
            self._due_s(source, target), source, target, lambda: self._arrive(source, target, chunk)
        )

    def _deliver_at(
        self, due_s: float, source: _End, target: _End, action: Callable[[], None]
    ) -> None:
        def deliver() -> None:
            link = self.link(source.host, target.host)
            if link.cut:
                link.held += 1
                # A cut link delays, as TCP's retransmission does; it never loses the middle.
                self._deliver_at(self.loop.time() + 0.2, source, target, action)
            else:
                action()

        self.loop.call_at(due_s, deliver, context=target.context)

    def _arrive(self, source: _End, target: _End, chunk: bytes) -> None:
        if target.lost:
            return
        self.on_deliver(source.host, target.host, chunk)
        target.inbox.append(chunk)
        target.inbox_bytes += len(chunk)
        self.drain(target, source)

    def drain(self, target: _End, source: _End) -> None:
        """Hand the inbox to the protocol while it reads."""
        while target.inbox and target.reading and not target.lost:
            chunk = target.inbox.popleft()
            target.inbox_bytes -= len(chunk)
            if source.transport is not None:
                source.transport.acknowledged(len(chunk))
            _feed(target.protocol, chunk, target)
        if target.eof_pending and not target.inbox and target.reading and not target.lost:
            self._lose(target, None)

    def finish(self, near: _End, far: _End) -> None:
        """An orderly close by `near`."""
        self._deliver_at(self._due_s(near, far), near, far, lambda: self._end_of_stream(far, near))
        self.loop.call_soon(self._lose, near, None, context=near.context)

    def _end_of_stream(self, target: _End, source: _End) -> None:
        target.eof_pending = True
        self.drain(target, source)

    def reset(self, near: _End, far: _End) -> None:
        """An abort by `near`."""
        self._lose_later(far, ConnectionResetError("connection reset by peer"), near.host)
        self.loop.call_soon(self._lose, near, None, context=near.context)

    def _lose_later(self, end: _End, error: Exception | None, source_host: str) -> None:
        delay_s = self._delay_s(source_host, end.host)
        self.loop.call_later(delay_s, self._lose, end, error, context=end.context)

    def _lose(self, end: _End, error: Exception | None) -> None:
        if end.lost:
            return
        end.lost = True
        if end.transport is not None:
            end.transport._closing = True
        if end.protocol is not None:
            end.protocol.connection_lost(error)


def _feed(protocol: Any, chunk: bytes, end: _End) -> None:
    if not isinstance(protocol, asyncio.BufferedProtocol):
        protocol.data_received(chunk)
        return
    view = memoryview(chunk)
    while view and not end.lost:
        buffer = memoryview(protocol.get_buffer(len(view)))
        taken = min(len(buffer), len(view))
        buffer[:taken] = view[:taken]
        protocol.buffer_updated(taken)
        view = view[taken:]
