"""Table of a broker's replicas, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from broker.metadata.cache import MetadataCache
from broker.replication.partition.partition import Partition
from protocol.errors import ApiError, ErrorCode

K = TypeVar("K", str, bytes)


class PartitionTable:
    """The replicas of one broker. Partitions without a replica here are looked up in the metadata,
    to name the error."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_id.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition | None:
        """Return the replica on this broker, or None."""
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def known(self, topic: str | bytes, index: int) -> Partition | None:
        """Return the replica on this broker by the topic's name or id, or None."""
        partitions = self.by_id.get(topic) if isinstance(topic, bytes) else self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def find(self, topic: str, index: int) -> Partition:
        """Return the replica on this broker.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER for a partition that exists elsewhere (or here soon),
                UNKNOWN_TOPIC_OR_PARTITION for one that does not exist.
        """
        partitions = self.by_name.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        if self._metadata.partition(topic, index) is not None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the replica on this broker; as `find`, with UNKNOWN_TOPIC_ID for an unknown id."""
        partitions = self.by_id.get(topic_id)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        topic = self._metadata.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, None)
        if index in topic.partitions:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)

    def add(self, partition: Partition) -> None:
        self.by_id.setdefault(partition.topic_id, {})[partition.index] = partition
        self.by_name.setdefault(partition.topic, {})[partition.index] = partition

    def remove(self, partition: Partition) -> None:
        """Remove a replica. Another one in its place, of a topic that was created again, stays."""
        _drop(self.by_id, partition.topic_id, partition)
        _drop(self.by_name, partition.topic, partition)


def _drop(table: dict[K, dict[int, Partition]], key: K, partition: Partition) -> None:
    held = table.get(key)
    if held is not None and held.get(partition.index) is partition:
        del held[partition.index]
        if not held:
            del table[key]
