"""Size of a replica's fetches, so that one response takes the event loop a few milliseconds.

A response of a mebibyte may have 15,000 batches: an idle controller writes one record twice a
second. Their headers are read three times, which takes 45 ms. So a replica appends the first
`BATCHES_MAX` batches of a response. Its next fetches request as many bytes as these had, so that
the leader sends little in vain, and more again after responses with fewer batches.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, Buffer

BATCHES_MAX: Final = 1_000
GROWTH: Final = 2
_LENGTH_POSITION: Final = 8

_length = struct.Struct(">i")


def size_of_first(data: Buffer, count: int) -> int:
    """Return the bytes of the first `count` batches; all if there are fewer, or broken ones."""
    position, size = 0, len(data)
    for _ in range(count):
        if size - position < HEADER_BYTES:
            return size
        (length,) = _length.unpack_from(data, position + _LENGTH_POSITION)
        if length <= 0:
            return size
        position += LENGTH_OVERHEAD_BYTES + length
    return min(position, size)


class FetchSize:
    """The bytes to request with the next fetch: at most `most_bytes`."""

    __slots__ = ("_most_bytes", "wanted_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.wanted_bytes = most_bytes

    def cut(self, data: Buffer) -> Buffer:
        """Return the batches of a response that are appended at once."""
        size = size_of_first(data, BATCHES_MAX)
        if size < len(data):
            self.wanted_bytes = size
            return memoryview(data)[:size]
        self.wanted_bytes = min(self.wanted_bytes * GROWTH, self._most_bytes)
        return data
