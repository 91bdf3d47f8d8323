"""Kafka's default partitioner, for records with and without a key."""

from __future__ import annotations

from client.leaders import LeaderCache
from protocol.murmur2 import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's clients select for a key, among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def keyless_partition(cache: LeaderCache, topic: str, count: int, turn: int) -> int:
    """Return the partition for records without a key: in turn, leaderless ones passed over."""
    led = [index for index in range(count) if cache.is_led((topic, index))]
    return led[turn % len(led)] if led else turn % count
