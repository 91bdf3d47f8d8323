"""Memory limit of incomplete requests, over all connections of a role.

`queued.max.request.bytes` sets the limit. Kafka reserves a request's announced size; here bytes
count once they have arrived, so that an announcement of 100 MB costs nothing. If a request needs
more than is left, its connection is not read: its bytes stay in the buffers of the kernel and the
sender until other requests release memory. Nothing is dropped.

Incomplete requests could wait for each other indefinitely. Therefore one connection at a time, the
one that has waited longest, may exceed the limit until its request is complete. It has
`OVERDRAFT_MS` for that. A slower client is disconnected, because it would block all others.

A connection without an incomplete request uses no memory: its next bytes arrive in a shared buffer,
and only the rest of an incomplete request moves to a buffer of its own.
"""

from __future__ import annotations

from typing import Protocol

from protocol.decoding import Allowance

SHARED_BYTES = 256 * 1024
SCARCE_BYTES = 4096
"""Limit of one read, for a connection without an incomplete request, while memory is used up."""
OVERDRAFT_MS = 30_000.0
SPARE_MAX = 8


class Starving(Protocol):
    """A connection that waits for memory."""

    def feed(self) -> None:
        """Request memory again, and resume reading if enough is free."""

    def close(self, reason: str) -> None: ...


class SpareBuffers:
    """Free receive buffers of the usual size.

    A busy connection needs a buffer for a moment many times a second. To allocate one, which fills
    it with zeros, costs more than to copy its bytes.
    """

    __slots__ = ("_free", "_size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._free: list[memoryview] = []

    def take(self, size_bytes: int) -> memoryview:
        """Return a buffer of this size with arbitrary content."""
        if size_bytes == self._size_bytes and self._free:
            return self._free.pop()
        return memoryview(bytearray(size_bytes))

    def put(self, buffer: memoryview) -> None:
        """Take back a buffer that is not in use any more."""
        if len(buffer) == self._size_bytes and len(self._free) < SPARE_MAX:
            self._free.append(buffer)


class RequestMemory:
    """The budget of a role; a `limit_bytes` of 0 or less means no limit."""

    __slots__ = (
        "_overdraft_since_ms",
        "_overdrawn",
        "_waiting",
        "allowance",
        "cut_off",
        "is_limited",
        "limit_bytes",
        "scarce",
        "used_bytes",
        "waits",
    )

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.is_limited = limit_bytes > 0
        self.scarce = False
        """True if the limit is reached."""
        self.used_bytes = 0
        self.waits = 0
        """Number of waits of connections for memory."""
        self.cut_off = 0
        """Number of connections that were closed because others waited for their memory."""
        self.allowance = Allowance()
        """Limit of the memory of decoded requests beyond a multiple of their frames."""
        self._waiting: dict[Starving, None] = {}
        self._overdrawn: Starving | None = None
        self._overdraft_since_ms = 0.0

    @property
    def waiting(self) -> int:
        """Number of connections that are not read because memory is used up."""
        return len(self._waiting)

    def charge(self, size_bytes: int) -> None:
        """Count bytes that have arrived already, even over the limit."""
        self.used_bytes += size_bytes
        self.scarce = 0 < self.limit_bytes <= self.used_bytes

    def grant(self, who: Starving, size_bytes: int, now_ms: float) -> bool:
        """Grant `who` more memory if it is free, or as the one connection over the limit.

        Returns: False if `who` must wait; its `feed` is called once memory is released.
        """
        if self.scarce and self._overdrawn is not who:
            if self._overdrawn is not None:
                self.waits += who not in self._waiting
                self._waiting[who] = None
                return False
            self._overdrawn = who
            self._overdraft_since_ms = now_ms
        self._waiting.pop(who, None)
        self.charge(size_bytes)
        return True

    def give_back(self, size_bytes: int) -> None:
        """Release memory, and feed waiting connections."""
        self.charge(-size_bytes)
        assert self.used_bytes >= 0
        while self._waiting and not self.scarce:
            self._feed_next()

    def settle(self, who: Starving) -> None:
        """End the wait and the overdraft of `who`: its request is complete, or it has ended."""
        self._waiting.pop(who, None)
        if self._overdrawn is who:
            self._overdrawn = None
            if self._waiting:
                self._feed_next()

    def _feed_next(self) -> None:
        who = next(iter(self._waiting))
        del self._waiting[who]
        who.feed()

    def cut_off_slow(self, now_ms: float) -> None:
        """Close the connection that has exceeded the limit for longer than `OVERDRAFT_MS`."""
        who = self._overdrawn
        if who is not None and now_ms - self._overdraft_since_ms > OVERDRAFT_MS:
            if self._waiting:
                self.cut_off += 1
                who.close("its request took too long while request memory was used up")
            else:
                self._overdraft_since_ms = now_ms
