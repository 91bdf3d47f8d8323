"""Kafka's default partitioner: where records with a key go."""

from __future__ import annotations

from protocol.murmur2 import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's clients choose for a key, of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
