"""Kafka's default partitioner for records with a key."""

from __future__ import annotations

from protocol.murmur2 import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's clients select for a key, among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
