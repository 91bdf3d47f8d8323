"""Memory that answers of a store take, whoever holds them.

A client that does not fetch an answer from its socket keeps the store's buffer in the transport,
where nobody counts it. So buffers are counted from here until they are gone.
"""

from __future__ import annotations

import weakref
from functools import partial

from protocol.schema import Buffer


class Part(bytearray):
    """A copy of a part; unlike `bytes`, it can be watched."""


class HeldBuffers:
    """Buffers that are in memory, by their owners."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[object]] = {}

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return sum(self._sizes.values())

    def add(self, buffer: Buffer, size_bytes: int) -> None:
        """Count `size_bytes` until what owns the bytes of `buffer` is gone, once for all parts of
        it. Plain `bytes` cannot be watched and are not counted."""
        owner = memoryview(buffer).obj
        number = id(owner)
        if isinstance(owner, bytes) or number in self._watches:
            return
        self._watches[number] = weakref.ref(owner, partial(self._gone, number))
        self._sizes[number] = size_bytes

    def _gone(self, number: int, _: object) -> None:
        """May be called by any thread, which is why nothing is added up here."""
        self._sizes.pop(number, None)
        self._watches.pop(number, None)
