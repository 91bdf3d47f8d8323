"""The partition of a coordinator's topic that a key belongs to.

Clients never compute it, but the records in a topic written by Kafka are where Kafka's rule put
them.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, wrapping, as a signed 32-bit integer."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] | units[index + 1] << 8)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of `key`; the one hash without an absolute value counts as 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
