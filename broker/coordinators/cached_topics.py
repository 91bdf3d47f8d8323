"""Topic lookups of coordinators, answered from the broker's metadata cache."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache

OFFSETS_TOPIC: Final = "__consumer_offsets"


class CoordinatorAddress(NamedTuple):
    """Address of a coordinator's broker on one listener."""

    node_id: int
    host: str
    port: int


class CachedTopics:
    """TopicLookup over the metadata this broker has replayed so far."""

    __slots__ = ("_cache",)

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self._cache.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes | None:
        topic = self._cache.topic(name)
        return None if topic is None else topic.id

    def has_partition(self, name: str, partition: int) -> bool:
        return self._cache.partition(name, partition) is not None

    def leader_address(self, partition: int, listener: str) -> CoordinatorAddress | None:
        """Return the address of the group coordinator of `partition`, or None if it is not
        reachable."""
        found = self._cache.partition(OFFSETS_TOPIC, partition)
        if found is None:
            return None
        endpoint = self._cache.alive_endpoint(found.leader, listener)
        if endpoint is None:
            return None
        return CoordinatorAddress(found.leader, endpoint.host, endpoint.port)
