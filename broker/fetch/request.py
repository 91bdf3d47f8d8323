"""Fetch requests as values: the sender, the partitions to read, the partitions to forget."""

from __future__ import annotations

from typing import Final

from broker.replication.sessions.fetch_session import PartitionKey
from protocol.messages.fetch import FetchRequest

RACKS_SINCE: Final = 11
DIVERGENCE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
LEADERS_SINCE: Final = 16

READ_COMMITTED: Final = 1

LONG: Final = 1_000
"""A request with more partitions is processed in several event-loop iterations."""

Wanted = FetchRequest.FetchPartition
Due = list[tuple[PartitionKey, Wanted]]
"""Partitions to read, in the order of the response."""


def sender_of(request: FetchRequest, version: int) -> tuple[int, int]:
    """Return the replica that sent a Fetch, and its broker epoch. A consumer has -1 for both, a
    follower -1 for the epoch if the version has none."""
    if version >= REPLICA_STATE_SINCE:
        state = request.replica_state
        return state.replica_id, state.replica_epoch
    return request.replica_id, -1


def is_from_follower(request: FetchRequest) -> bool:
    """Return whether a follower sent the fetch: Kafka counts consumers' and followers' fetches
    separately."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def is_long(request: FetchRequest) -> bool:
    """Return whether the request names too many partitions for one event-loop iteration."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    if len(topics) == 1 and not forgotten:
        return len(topics[0].partitions) > LONG
    return (
        len(topics) + len(forgotten) > LONG
        or sum([len(topic.partitions) for topic in topics]) > LONG
        or (bool(forgotten) and sum([len(topic.partitions) for topic in forgotten]) > LONG)
    )


def wanted_partitions(request: FetchRequest, *, by_id: bool) -> dict[PartitionKey, Wanted]:
    """Return the partitions to read, by topic id or by topic name."""
    wanted: dict[PartitionKey, Wanted] = {}
    for topic in request.topics:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            # A session keeps this object, and unknown tags may have any size.
            partition.unknown_tags = None
            wanted[(name, partition.partition)] = partition
    return wanted


def forgotten_partitions(request: FetchRequest, *, by_id: bool) -> list[PartitionKey]:
    """Return the partitions that leave the session."""
    if not request.forgotten_topics_data:
        return []
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
