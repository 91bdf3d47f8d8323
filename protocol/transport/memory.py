"""The memory that requests may take while they are not whole, over all connections of a role.

`queued.max.request.bytes` bounds it. Kafka takes a request's whole announced size out of its pool;
here bytes count when they have arrived, so that announcing 100 MB costs nothing. A connection whose
request needs more than is left is no longer read: its bytes stay with the kernel, and with the
sender, until others have given memory back. Nothing is dropped.

Requests that are all of them half here could wait for each other for ever. So one connection at a
time, the one that has waited longest, may go over the limit until its request is whole. It has
`OVERDRAFT_MS` for that; a client that is slower is cut off, or it would hold up all others.

Memory that a connection has while nothing is half received: none. Its next bytes arrive in a buffer
that all connections share, and what is left of an incomplete request moves to one of its own.
"""

from __future__ import annotations

from typing import Protocol

from protocol.decoding import Allowance

SHARED_BYTES = 256 * 1024
SCARCE_BYTES = 4096
"""What a connection without a request in progress may read at once while memory is used up."""
OVERDRAFT_MS = 30_000.0
SPARE_MAX = 8


class Starving(Protocol):
    """A connection that waits for memory."""

    def feed(self) -> None:
        """Ask again, and be read again if there is enough."""

    def close(self, reason: str) -> None: ...


class SpareBuffers:
    """Receive buffers of the usual size that are free. A new one is filled with zeros first, which
    costs a busy connection, that needs one for a moment many times a second, more than its copy."""

    __slots__ = ("_free", "_size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._free: list[memoryview] = []

    def take(self, size_bytes: int) -> memoryview:
        """A buffer of this size; what is in it is of no meaning."""
        if size_bytes == self._size_bytes and self._free:
            return self._free.pop()
        return memoryview(bytearray(size_bytes))

    def put(self, buffer: memoryview) -> None:
        """Nobody uses this one any more."""
        if len(buffer) == self._size_bytes and len(self._free) < SPARE_MAX:
            self._free.append(buffer)


class RequestMemory:
    """The budget. `limit_bytes` 0 or less means that there is none."""

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
        """Whether everything is used up."""
        self.used_bytes = 0
        self.waits = 0
        """How often a connection had to wait."""
        self.cut_off = 0
        """Connections that were closed because others waited for what they had."""
        self.allowance = Allowance()
        """What decoded requests take beyond a multiple of their frames."""
        self._waiting: dict[Starving, None] = {}
        self._overdrawn: Starving | None = None
        self._overdraft_since_ms = 0.0

    @property
    def waiting(self) -> int:
        """Connections that are not read for want of memory."""
        return len(self._waiting)

    def charge(self, size_bytes: int) -> None:
        """Count bytes that are here already."""
        self.used_bytes += size_bytes
        self.scarce = 0 < self.limit_bytes <= self.used_bytes

    def grant(self, who: Starving, size_bytes: int, now_ms: float) -> bool:
        """Whether `who` may take so much more; it is counted then. Otherwise `who` is fed when
        others have given back."""
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
        """Memory is free again."""
        self.charge(-size_bytes)
        assert self.used_bytes >= 0
        while self._waiting and not self.scarce:
            self._feed_next()

    def settle(self, who: Starving) -> None:
        """The request of `who` is whole, or `who` is gone: it needs no more."""
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
        """Close the connection that has been over the limit for too long."""
        who = self._overdrawn
        if who is not None and now_ms - self._overdraft_since_ms > OVERDRAFT_MS:
            if self._waiting:
                self.cut_off += 1
                who.close("its request took too long while request memory was used up")
            else:
                self._overdraft_since_ms = now_ms
