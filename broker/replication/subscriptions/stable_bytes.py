"""Bytes of a partition between the last stable offset (LSO) and the high watermark.

A waiting read_committed fetch counts the bytes that become readable. Behind an open transaction the
LSO stands still while the high watermark moves. These bytes are kept by the offsets where the high
watermark stopped, and counted when the LSO has reached them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

PARTS_MAX: Final = 256


class StableBytes:
    """Counter of one partition. The count may be too high, but never too low: a fetch that is woken
    too early waits on."""

    __slots__ = ("_begin", "_parts", "stable_offset")

    def __init__(self) -> None:
        self.stable_offset = 0
        """The LSO when the high watermark last moved."""
        self._begin = 0
        # (end offset, size) of the bytes from `_begin` on.
        self._parts: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        """Return whether there are bytes that are not stable yet."""
        return bool(self._parts)

    def moved(self, high_watermark: int, size_bytes: int, stable_offset: int) -> int | None:
        """Note a move of the high watermark by `size_bytes`.

        Returns the bytes that have become stable; None if the LSO has not advanced.
        """
        parts = self._parts
        if not parts:
            self._begin = self.stable_offset
        elif len(parts) == PARTS_MAX:
            size_bytes += parts.pop()[1]
        parts.append((high_watermark, size_bytes))
        advanced = stable_offset > self.stable_offset
        self.stable_offset = stable_offset
        if not advanced:
            return None
        stable_bytes = 0
        while parts and parts[0][0] <= stable_offset:
            self._begin, size_bytes = parts.popleft()
            stable_bytes += size_bytes
        if parts and self._begin < stable_offset:
            stable_bytes += parts[0][1]
        return stable_bytes

    def clear(self) -> None:
        """Forget all bytes, when the leader changes."""
        self._parts.clear()
