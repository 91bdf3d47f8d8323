"""An in-memory network: hosts, links with delay, cuts and resets.

A connection has two ends, and a queue of the data in flight towards each. Bytes written arrive
after the link's delay, in order; a cut holds them back and loses none.

If a receiver paused reading, the sender's buffer grows, and the sender's protocol is paused as with
a socket. The host that a connection starts from is a context variable (`CURRENT_HOST`): tasks and
callbacks inherit it, so the node's code is unaware of it.

Every delay comes from the one `random.Random` argument: equal seed, equal network.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from simulation.world.life import life_of
from simulation.world.links import Link, Trouble

CLIENT_HOST = "client"
"""The host of all code outside the nodes."""
CURRENT_HOST: contextvars.ContextVar[str] = contextvars.ContextVar(
    "current_host", default=CLIENT_HOST
)

HIGH_WATER_BYTES = 64 * 1024
LOW_WATER_BYTES = 16 * 1024
RETRANSMIT_S = 0.2

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""})


class ListeningSocket:
    """A socket in `Server.sockets`, which only has the bound address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        """Return the bound (host, port)."""
        return self._address


class MemoryServer(asyncio.AbstractServer):
    """A listener in place of asyncio's Server."""

    def __init__(self, network: Network, factory: Any, host: str, address: tuple[str, int]) -> None:
        self.network = network
        self.factory = factory
        self.host = host
        self.address = address
        self.context = contextvars.copy_context()
        self.listens = False
        self.sockets = [ListeningSocket(address)]
        self._closed = network.loop.create_future()

    def close(self) -> None:
        """Stop accepting connections; existing ones stay."""
        self.network.addresses.remove(self)
        if not self._closed.done():
            self._closed.set_result(None)

    def is_serving(self) -> bool:
        """Return True until the server is closed."""
        return not self._closed.done()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that serves connections."""
        loop: asyncio.AbstractEventLoop = self.network.loop
        return loop

    async def serve_forever(self) -> None:
        """Wait until the server is closed."""
        await self._closed

    async def start_serving(self) -> None:
        """Accept connections; before that the address refuses them."""
        self.listens = True

    async def wait_closed(self) -> None:
        """Wait until `close` was called."""
        await self._closed


@dataclass(slots=True)
class _Coming:
    """Data arriving at an end: a piece of what was written, or None for the end of the stream."""

    due_s: float
    chunk: bytes | None


@dataclass(slots=True, eq=False)
class _End:
    """One end of a connection: its protocol, and the data in flight towards it."""

    host: str
    address: tuple[str, int]
    context: contextvars.Context
    protocol: Any = None
    transport: MemoryTransport | None = None
    link: Link = field(default_factory=Link)
    """The link that leads away from here."""
    buffered: bool = False
    """True if the protocol provides a buffer for arriving data."""
    inbox: deque[bytes] = field(default_factory=deque)
    eof_pending: bool = False
    reading: bool = True
    coming: deque[_Coming] = field(default_factory=deque)
    last_due_s: float = 0.0
    lost: bool = False
    fooled_by: Trouble | None = None
    """Set if the other end is gone, and this end does not know it."""
    stalled_by: Trouble | None = None
    """Set while data sent from here is held; all of it arrives later."""
    left: bool = False
    """True if the end of the stream is on its way to the other side of a stalled connection."""

    def speak(self, protocol: Any) -> None:
        """Let this protocol handle the end from now on."""
        self.protocol = protocol
        self.buffered = isinstance(protocol, asyncio.BufferedProtocol)


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
        """Return the protocol at this end."""
        return self._near.protocol

    def set_protocol(self, protocol: Any) -> None:
        """Replace the protocol at this end."""
        self._near.speak(protocol)

    def is_closing(self) -> bool:
        """Return True once close or abort was called, or the peer's reset arrived."""
        return self._closing

    def pause_reading(self) -> None:
        """Leave arriving bytes in the inbox."""
        self._near.reading = False

    def resume_reading(self) -> None:
        """Deliver the bytes in the inbox, one loop iteration later."""
        if not self._near.reading and not self._closing:
            self._near.reading = True
            self._network.loop.call_soon(
                self._network.drain, self._near, self._far, context=self._near.context
            )

    def is_reading(self) -> bool:
        """Return False while reading is paused."""
        return self._near.reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of bytes unread by the peer at which the protocol is paused and
        resumed."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high) in bytes."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes written that the peer has not read."""
        return self._unacked_bytes

    def write(self, data: Any) -> None:
        """Send a copy of `data` (the caller may reuse its buffer)."""
        if self._closing or self._near.lost or not data:
            return
        chunk = bytes(data)
        self._unacked_bytes += len(chunk)
        self._network.send(self._near, self._far, chunk)
        if self._protocol_paused or self._unacked_bytes <= self._high_now:
            return
        self._near.link.blocked()
        self._protocol_paused = True
        self._near.protocol.pause_writing()

    @property
    def _high_now(self) -> int:
        link = self._near.link
        return link.window_bytes(self._high) if link.troubles else self._high

    def writelines(self, list_of_data: Any) -> None:
        """Send the parts as one."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Return False: half-closed connections are not modelled."""
        return False

    def acknowledged(self, size: int) -> None:
        """Note that the peer's protocol took `size` bytes."""
        self._unacked_bytes -= size
        if not self._protocol_paused or self._near.lost:
            return
        if self._unacked_bytes <= min(self._low, self._high_now):
            self._protocol_paused = False
            self._network.loop.call_soon(
                self._near.protocol.resume_writing, context=self._near.context
            )

    def close(self) -> None:
        """Close once all written bytes have been delivered."""
        if not self._closing:
            self._closing = True
            self._network.finish(self._near, self._far)

    def abort(self) -> None:
        """Close at once; the peer gets a reset."""
        self._closing = True
        self._network.reset(self._near, self._far)


class Addresses:
    """The addresses of one network: its listeners, and the ports that were given out."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], MemoryServer] = {}
        self._next_port: dict[str, int] = {}

    def new_port(self, host: str) -> int:
        """Return a port of a host that was not given out before."""
        port = self._next_port.get(host, 20_000)
        self._next_port[host] = port + 1
        return port

    def add(self, server: MemoryServer) -> None:
        """Add a listener. Raises: OSError when its address is in use."""
        key = (server.host, server.address[1])
        if key in self._listeners:
            raise OSError(98, f"address already in use: {key[0]}:{key[1]}")
        self._listeners[key] = server

    def remove(self, server: MemoryServer) -> None:
        """Remove a listener, which need not exist."""
        key = (server.host, server.address[1])
        if self._listeners.get(key) is server:
            del self._listeners[key]

    def remove_host(self, host: str) -> None:
        """Remove all listeners of a host."""
        for server in [one for one in self._listeners.values() if one.host == host]:
            self.remove(server)

    def listener(self, host: str, port: int) -> MemoryServer | None:
        """Return the listener on that address."""
        return self._listeners.get((host, port))

    def only_listener(self, port: int) -> MemoryServer | None:
        """Return the only listener on that port in this world, for clients that connect to
        localhost."""
        found = [server for (_, p), server in self._listeners.items() if p == port]
        return found[0] if len(found) == 1 else None


class Network:
    """Hosts, listeners and connections of one world."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.addresses = Addresses()
        self._connections: dict[int, tuple[_End, _End]] = {}
        self._next_connection = 0
        self._links: dict[tuple[str, str], Link] = {}
        self.default_link = Link()
        self.loop: Any = None
        self.on_send: Callable[[str, str, bytes], None] = lambda source, target, data: None
        """Called for every message as it is sent: (source host, target host, bytes)."""
        self.on_deliver: Callable[[str, str, bytes], None] = lambda source, target, data: None
        """Called for every message as it reaches the target's inbox."""
        self.make_link: Callable[[str, str], Link] = lambda source, target: replace(
            self.default_link, held=0, troubles=[]
        )
        """Creates the link from one host to another when it is first used."""
        self._dark: dict[str, Trouble] = {}

    def attach(self, loop: Any) -> None:
        """Attach the loop that this network serves; called once."""
        self.loop = loop

    def link(self, source: str, target: str) -> Link:
        """Return the link from one host to another; change it to inject faults."""
        key = (source, target)
        if key not in self._links:
            self._links[key] = self.make_link(source, target)
        return self._links[key]

    # --- faults -------------------------------------------------------------------------------

    def lay(self, trouble: Trouble, links: Iterable[Link]) -> None:
        """Put a trouble on links, until `lift`."""
        for link in links:
            link.troubles.append(trouble)

    def lift(self, trouble: Trouble, links: Iterable[Link]) -> None:
        """Remove a trouble; data that it held back travels on as if it had been sent now."""
        freed = {id(link) for link in links}
        for link in self._links.values():
            if id(link) in freed:
                link.troubles.remove(trouble)
        now_s = self.loop.now_s
        for one in self._living():
            for source, target in (one, one[::-1]):
                link = source.link
                if id(link) not in freed:
                    continue
                latest_s = now_s + link.delay_s(self._rng)
                for coming in target.coming:
                    coming.due_s = min(coming.due_s, latest_s)
                target.last_due_s = min(target.last_due_s, latest_s)
                self.loop.call_at(
                    latest_s, self._come, latest_s, source, target, context=target.context
                )

    def half_open(self, host: str, others: Iterable[str], hole: Trouble, *, here: bool) -> int:
        """Close the connections between a host and others on one side (`here`: the host's).

        The other side does not notice, and its data vanishes until `fill`. Returns: the number of
        connections.
        """
        found = 0
        peers = set(others) - {host}
        for one in self._living():
            for mine, other in (one, one[::-1]):
                if mine.host == host and other.host in peers and not (mine.lost or other.lost):
                    gone, fooled = (mine, other) if here else (other, mine)
                    fooled.fooled_by = hole
                    error = TimeoutError(110, "connection timed out")
                    self.loop.call_soon(self._lose, gone, error, context=gone.context)
                    found += 1
        return found

    def stall(self, host: str, others: Iterable[str], hold: Trouble, *, here: bool) -> None:
        """Hold the data that one side (`here`: the host's) sends over existing connections until
        `go_on`: their path is stuck, and new connections take another one."""
        peers = set(others) - {host}
        for one in self._living():
            for mine, other in (one, one[::-1]):
                if mine.host == host and other.host in peers and not (mine.lost or other.lost):
                    (mine if here else other).stalled_by = hold

    def give_up(self, hold: Trouble) -> None:
        """Close stalled connections on the sending side. The other side keeps them until the data
        in flight has come."""
        for near, far in self._stalled(hold):
            self._leave(near, far)
            error = TimeoutError(110, "connection timed out")
            self.loop.call_soon(self._lose, near, error, context=near.context)

    def go_on(self, hold: Trouble) -> None:
        """Let held data arrive within a retransmission."""
        for near, _ in self._stalled(hold):
            near.stalled_by = None

    def _stalled(self, hold: Trouble) -> list[tuple[_End, _End]]:
        both = [pair for one in self._living() for pair in (one, one[::-1])]
        return [(near, far) for near, far in both if near.stalled_by is hold]

    def _leave(self, near: _End, far: _End) -> None:
        """Send the end of the stream, behind the data in flight."""
        if not near.left:
            near.left = True
            self._deliver(near, far, 0, None)

    def between(self, hosts: Iterable[str]) -> Counter[tuple[str, str]]:
        """Return the number of connections from one of these hosts to another of them."""
        inside = set(hosts)
        ends = ((near.host, far.host) for near, far in self._living())
        return Counter(one for one in ends if inside.issuperset(one))

    def _living(self) -> list[tuple[_End, _End]]:
        """Return the connections that one side at least still has; the others are dropped."""
        for key, (near, far) in list(self._connections.items()):
            if near.lost and far.lost:
                del self._connections[key]
        return list(self._connections.values())

    def fill(self, hole: Trouble) -> None:
        """Reset connections whose other end is gone: their data, or their next probe, gets a
        response."""
        self._dark = {host: one for host, one in self._dark.items() if one is not hole}
        for one in self._living():
            for end, other in (one, one[::-1]):
                if end.fooled_by is hole and not end.lost:
                    self._lose_later(end, ConnectionResetError("no such connection"), other)

    def crash_host(self, host: str, silently: Trouble | None = None) -> None:
        """Remove a host: listeners vanish, peers get resets, its own protocols are not notified.

        With `silently` peers get no reset either, and connection attempts no response, until
        `fill`.
        """
        if silently is not None:
            self._dark[host] = silently
        self.addresses.remove_host(host)
        for near, far in self._living():
            for end, other in ((near, far), (far, near)):
                if end.host == host:
                    end.lost = True
                    if end.transport is not None:
                        end.transport._closing = True
                    if end.stalled_by is not None:
                        self._leave(end, other)
                    elif silently is None:
                        error = ConnectionResetError("peer host crashed")
                        self._lose_later(other, error, end)
                    else:
                        other.fooled_by = silently

    def listen(self, factory: Any, host: str, port: int) -> MemoryServer:
        """Bind a listener. Raises: OSError when the address is in use."""
        name = CURRENT_HOST.get() if host in _LOOPBACK_NAMES else host
        if port == 0:
            port = self.addresses.new_port(name)
        bound_host = host if host not in ("", "0.0.0.0", "::") else name
        server = MemoryServer(self, factory, name, (bound_host, port))
        self.addresses.add(server)
        return server

    async def connect(self, factory: Any, host: str, port: int) -> tuple[Any, Any]:
        """Connect from the current host. Hangs like a real connection while the link is cut.

        Raises: ConnectionRefusedError if no server listens there.
        """
        source = CURRENT_HOST.get()
        target = source if host in _LOOPBACK_NAMES else host
        await self._travel(source, target)
        server = self.addresses.listener(target, port)
        if server is None and host in _LOOPBACK_NAMES:
            server = self.addresses.only_listener(port)
        if server is None or not server.listens:
            raise ConnectionRefusedError(111, f"connect to {host}:{port} refused")
        port_here = self.addresses.new_port(source)
        client = _End(source, (source, port_here), contextvars.copy_context())
        remote = _End(server.host, server.address, server.context)
        self._connections[self._next_connection] = (client, remote)
        self._next_connection += 1
        client.link, remote.link = self.link(source, remote.host), self.link(remote.host, source)
        client.speak(factory())
        client.transport = MemoryTransport(self, client, remote)
        remote.transport = MemoryTransport(self, remote, client)
        life = life_of(server.context)
        if life is not None and life.parked is not None:
            # The kernel accepts for a paused process, which is notified when it is resumed.
            self.loop.call_soon(self._accept, server, remote, context=server.context.copy())
        else:
            self._accept(server, remote)
        client.protocol.connection_made(client.transport)
        return client.transport, client.protocol

    def _accept(self, server: MemoryServer, remote: _End) -> None:
        if not remote.lost:
            remote.speak(server.context.run(server.factory))
            server.context.copy().run(remote.protocol.connection_made, remote.transport)

    async def _travel(self, source: str, target: str) -> None:
        # Polling costs nothing in virtual time, and a healed link needs no notification.
        there, back = self.link(source, target), self.link(target, source)
        while there.cut or back.cut or target in self._dark:
            there.held += there.cut or back.cut
            await asyncio.sleep(0.05)
        await asyncio.sleep(self._delay_s(there))

    def _delay_s(self, link: Link, size_bytes: int = 0) -> float:
        delay_s = link.delay_s(self._rng)
        return delay_s + link.wait_s(self.loop.now_s, size_bytes) if link.troubles else delay_s

    def send(self, source: _End, target: _End, chunk: bytes) -> None:
        """Send bytes; they arrive in order after the link's delay."""
        self.on_send(source.host, target.host, chunk)
        if source.fooled_by is not None:
            source.fooled_by.hits["vanished"] += 1
            return
        link = source.link
        for piece in link.pieces(chunk) if link.troubles else (chunk,):
            self._deliver(source, target, len(piece), piece)

    def _deliver(self, source: _End, target: _End, size_bytes: int, chunk: bytes | None) -> None:
        due_s = self.loop.now_s + self._delay_s(source.link, size_bytes)
        if due_s < target.last_due_s:
            due_s = target.last_due_s
        target.last_due_s = due_s
        target.coming.append(_Coming(due_s, chunk))
        self.loop.call_at(due_s, self._come, due_s, source, target, context=target.context)

    def _come(self, due_s: float, source: _End, target: _End) -> None:
        """Deliver due data, in order. A cut link delays, as TCP's retransmission does; it never
        loses data in the middle."""
        # a timer may be early by less than the clock's resolution
        now_s = max(due_s, self.loop.now_s)
        coming, link = target.coming, source.link
        while coming and coming[0].due_s <= now_s:
            if link.cuts or source.stalled_by is not None:
                if source.stalled_by is None:
                    link.held += 1
                else:
                    source.stalled_by.hits["held"] += 1
                again_s = coming[0].due_s = now_s + RETRANSMIT_S
                self.loop.call_at(
                    again_s, self._come, again_s, source, target, context=target.context
                )
                return
            chunk = coming.popleft().chunk
            if chunk is not None:
                self._arrive(source, target, chunk)
            else:
                target.eof_pending = True
                self.drain(target, source)

    def _arrive(self, source: _End, target: _End, chunk: bytes) -> None:
        if target.lost:
            return
        link = source.link
        part = link.part_before_reset(chunk) if link.troubles else None
        if part is not None:
            chunk = part
        self.on_deliver(source.host, target.host, chunk)
        target.inbox.append(chunk)
        self.drain(target, source)
        if part is not None:
            self._lose(target, ConnectionResetError("connection reset"))
            self._lose_later(source, ConnectionResetError("connection reset"), target)

    def drain(self, target: _End, source: _End) -> None:
        """Pass the inbox to the protocol while it reads."""
        inbox = target.inbox
        while inbox and target.reading and not target.lost:
            chunk = inbox.popleft()
            if source.transport is not None:
                source.transport.acknowledged(len(chunk))
            _feed(target.protocol, chunk, target)
        if target.eof_pending and not inbox and target.reading and not target.lost:
            self._lose(target, None)

    def finish(self, near: _End, far: _End) -> None:
        """Close the connection cleanly from `near`."""
        if near.fooled_by is None:
            self._deliver(near, far, 0, None)
        self.loop.call_soon(self._lose, near, None, context=near.context)

    def reset(self, near: _End, far: _End) -> None:
        """Abort the connection from `near`."""
        if near.stalled_by is None:
            self._lose_later(far, ConnectionResetError("connection reset by peer"), near)
        else:
            self._leave(near, far)
        self.loop.call_soon(self._lose, near, None, context=near.context)

    def _lose_later(self, end: _End, error: Exception | None, source: _End) -> None:
        delay_s = self._delay_s(source.link)
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
    if not end.buffered:
        protocol.data_received(chunk)
        return
    buffer, size = protocol.get_buffer(len(chunk)), len(chunk)
    if len(buffer) >= size:
        buffer[:size] = chunk
        protocol.buffer_updated(size)
        return
    view = memoryview(chunk)
    while view and not end.lost:
        buffer = memoryview(protocol.get_buffer(len(view)))
        taken = min(len(buffer), len(view))
        buffer[:taken] = view[:taken]
        protocol.buffer_updated(taken)
        view = view[taken:]
