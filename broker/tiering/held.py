"""Memory use of the object store's responses until they are released.

If a client does not read a response from its socket, the transport keeps the store's buffer, which
no other limit counts. So buffers are counted here until they are released.
"""

from __future__ import annotations

import weakref
from functools import partial

from protocol.schema import Buffer


class Part(bytearray):
    """A copy of a part; unlike `bytes`, it supports weak references."""


class HeldBuffers:
    """Sizes of the buffers in memory, by owner."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[object]] = {}

    @property
    def bytes(self) -> int:
        """Total size of all buffers."""
        return sum(self._sizes.values())

    def add(self, buffer: Buffer, size_bytes: int) -> None:
        """Count `size_bytes` until the object that owns the bytes of `buffer` is released; an owner
        is counted once for all parts of it. Plain `bytes` cannot be tracked and are not counted."""
        owner = memoryview(buffer).obj
        number = id(owner)
        if isinstance(owner, bytes) or number in self._watches:
            return
        self._watches[number] = weakref.ref(owner, partial(self._gone, number))
        self._sizes[number] = size_bytes

    def _gone(self, number: int, _: object) -> None:
        """Remove a released buffer. May be called by any thread, so there is no running total
        here."""
        self._sizes.pop(number, None)
        self._watches.pop(number, None)
