"""Partition of a coordinator's topic for a key.

Clients never compute it, but Kafka's rule has placed the records in a topic that Kafka wrote.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CACHED_CHARS_MAX: Final = 256
"""Longer keys are not cached: a client chooses them, and they may have 32 KB."""
CACHED_MAX: Final = 4_096


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, wrapping, as a signed 32-bit
    integer."""
    return _kept_hash(text) if len(text) <= CACHED_CHARS_MAX else _hash(text)


def _hash(text: str) -> int:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


_kept_hash: Final = lru_cache(CACHED_MAX)(_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of `key`; the one hash without an absolute value counts as 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
