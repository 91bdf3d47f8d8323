"""Rate limit of the cleaner: `log.cleaner.io.max.bytes.per.second`."""

from __future__ import annotations


class Throttle:
    """Limits the average rate of bytes read and written since the first ones."""

    __slots__ = ("_begin_ms", "_bytes", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._begin_ms: float | None = None
        self._bytes = 0

    def rest_ms(self, size_bytes: int, now_ms: float) -> float:
        """Count bytes. Returns the milliseconds to pause."""
        if self._begin_ms is None:
            self._begin_ms = now_ms
        self._bytes += size_bytes
        due_ms = self._bytes / self.bytes_per_second * 1000.0
        return max(0.0, self._begin_ms + due_ms - now_ms)
