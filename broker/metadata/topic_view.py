"""Topics as metadata responses show them, encoded once and cached.

Building and encoding the entry of a topic with a thousand partitions costs most of a millisecond,
and clients request the same topics repeatedly. The bytes of an entry depend on the topic's image
and on the brokers with an address on the client's listener. Both are frozen values, so a cached
entry is valid exactly as long as both are the same objects.

The bytes are cut out of an encoded response that contains this one topic: the parts before and
behind the entry have the same length in a response without topics.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from broker.metadata.cache import MetadataCache
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponse
from protocol.topic_name import is_internal_topic
from serving.authorized_operations import NOT_ASKED, TOPIC_OPERATIONS

LISTENER_ERRORS_SINCE: Final = 6
"""From this version a leader without the client's listener has an error code of its own."""
OPERATIONS_SINCE: Final = 8
FLEXIBLE_SINCE: Final = 9

CACHED_TOPICS_MAX: Final = 20_000
CACHED_BYTES_MAX: Final = 64 << 20
"""Clients choose the version, and each has entries of its own."""

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition
_Key = tuple[bytes, int, str, bool]


class Reachable:
    """Brokers to which a client on one listener can be sent."""

    __slots__ = ("_offline", "_registered", "alive", "gone", "ids", "leaders")

    def __init__(
        self, metadata: MetadataCache, listener: str, gone: frozenset[int] = frozenset()
    ) -> None:
        """Compute the brokers. Those in `gone` are alive in the metadata, but unreachable as
        leaders (`LostBrokers`)."""
        self.alive = metadata.alive_brokers(listener)
        self.gone = gone
        self.ids = frozenset(broker.id for broker, _ in self.alive)
        self.leaders = self.ids - gone
        brokers = metadata.image.cluster.brokers
        self._registered = frozenset(
            broker_id for broker_id, broker in brokers.items() if not broker.fenced
        )
        # A topic's partitions share a few assignments.
        self._offline: dict[tuple[int, ...], list[int]] = {}

    def offline(self, replicas: tuple[int, ...]) -> list[int]:
        """Return the replicas that are fenced, unknown, or not on this listener. The list is
        shared: do not change it."""
        found = self._offline.get(replicas)
        if found is None:
            found = [replica_id for replica_id in replicas if replica_id not in self.ids]
            self._offline[replicas] = found
        return found

    def leader_error(self, leader: int) -> ErrorCode:
        """Return NONE, or the reason why a client cannot use `leader`."""
        if leader in self.leaders:
            return ErrorCode.NONE
        if leader in self._registered and leader not in self.gone:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE


def partition_view(
    index: int, partition: PartitionImage, reachable: Reachable, version: int
) -> MetadataResponse.MetadataResponsePartition:
    """Return one partition for a client of this version."""
    replicas, isr = list(partition.replicas), list(partition.isr)
    offline = reachable.offline(partition.replicas)
    error = reachable.leader_error(partition.leader)
    if error is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_ERRORS_SINCE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    if version == 0 and offline:
        # Clients of version 0 treat every listed replica as reachable.
        replicas = [replica_id for replica_id in replicas if replica_id not in offline]
        isr = [replica_id for replica_id in isr if replica_id not in offline]
        if error is ErrorCode.NONE:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return _Partition(
        error_code=error,
        partition_index=index,
        leader_id=partition.leader if partition.leader in reachable.leaders else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def topic_view(
    topic: TopicImage, reachable: Reachable, version: int, *, operations: bool
) -> MetadataResponse.MetadataResponseTopic:
    """Return one topic for a client of this version."""
    return _Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal_topic(topic.name),
        partitions=[
            partition_view(index, partition, reachable, version)
            for index, partition in sorted(topic.partitions.items())
        ],
        topic_authorized_operations=(
            TOPIC_OPERATIONS if operations and version >= OPERATIONS_SINCE else NOT_ASKED
        ),
    )


def _tail_bytes(version: int) -> int:
    """Return the number of bytes of a response behind its topics: cluster operations, error code,
    tags."""
    operations = 4 if 8 <= version <= 10 else 0
    error_code = 2 if version >= 13 else 0
    tags = 1 if version >= FLEXIBLE_SINCE else 0
    return operations + error_code + tags


@cache
def _empty_bytes(version: int) -> int:
    return len(encode(MetadataResponse(), version))


def encode_topic(topic: MetadataResponse.MetadataResponseTopic, version: int) -> bytes:
    """Return the bytes of one entry of a response's topics."""
    empty_bytes = _empty_bytes(version)
    tail = _tail_bytes(version)
    data = encode(MetadataResponse(topics=[topic]), version)
    return data[empty_bytes - tail : len(data) - tail]


def split_response(response: MetadataResponse, version: int) -> tuple[bytes, bytes]:
    """Return the bytes before the count of topics and behind the topics, of a response without
    any."""
    assert not response.topics
    data = encode(response, version)
    tail = len(data) - _tail_bytes(version)
    count_bytes = 1 if version >= FLEXIBLE_SINCE else 4
    return data[: tail - count_bytes], data[tail:]


class TopicBlobs:
    """Encoded topics by (topic, version, listener, operations)."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._blobs: dict[_Key, tuple[TopicImage, Reachable, bytes]] = {}
        self._blob_bytes = 0
        self._reachable: dict[str, Reachable] = {}

    def reachable(self, listener: str, gone: frozenset[int] = frozenset()) -> Reachable:
        """Return the brokers to which a client on `listener` can be sent now, except leaders in
        `gone`."""
        known = self._reachable.get(listener)
        alive = self._metadata.alive_brokers(listener)
        if known is None or known.alive is not alive or known.gone != gone:
            known = self._reachable[listener] = Reachable(self._metadata, listener, gone)
        return known

    def get(
        self, topic: TopicImage, reachable: Reachable, listener: str, version: int, operations: bool
    ) -> bytes:
        """Return the topic's entry for a client of this version on this listener."""
        key = (topic.id, version, listener, operations)
        cached = self._blobs.get(key)
        if cached is not None and cached[0] is topic and cached[1] is reachable:
            return cached[2]
        blob = encode_topic(topic_view(topic, reachable, version, operations=operations), version)
        if len(blob) > CACHED_BYTES_MAX // 4:
            return blob
        if len(self._blobs) >= CACHED_TOPICS_MAX or self._blob_bytes + len(blob) > CACHED_BYTES_MAX:
            # Deleted topics leave their entries behind: start with an empty cache.
            self._blobs.clear()
            self._blob_bytes, cached = 0, None
        self._blob_bytes += len(blob) - (0 if cached is None else len(cached[2]))
        self._blobs[key] = (topic, reachable, blob)
        return blob
