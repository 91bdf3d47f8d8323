"""Summary of a cluster's state at the end of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from audit.state.cluster import ClusterState
from audit.state.shapes import NO_LEADER
from protocol.ids import uuid_to_text


def partition_rows(cluster: ClusterState) -> Iterator[dict[str, Any]]:
    """Yield each partition, for the audit of the brokers' data."""
    for partition in cluster.each_partition():
        shape, topic = partition.shape.key, partition.topic
        policy = cluster.setting(topic.name, "cleanup.policy") or ""
        yield {
            "topic": topic.name,
            "topic_id": uuid_to_text(topic.id),
            "partition": partition.index,
            "leader": shape.leader,
            "leader_epoch": partition.leader_epoch if partition.certain else None,
            "replicas": list(shape.replicas),
            "isr": list(shape.isr),
            "compacted": "compact" in policy or topic.name.startswith("__"),
        }


def end_state(cluster: ClusterState, *, whole: bool) -> dict[str, Any]:
    """Return numbers of partitions; with `whole` also those that are not about partitions.

    Of several shards, only one reports the latter.
    """
    leaders: dict[str, int] = {}
    preferred: dict[str, int] = {}
    replicas: dict[str, int] = {}
    under = stopped = 0
    for partition in cluster.each_partition():
        shape = partition.shape.key
        stopped += partition.shape.leaderless and cluster.went_in_order(shape)
        leaders[str(shape.leader)] = leaders.get(str(shape.leader), 0) + 1
        if shape.replicas:
            first = str(shape.replicas[0])
            preferred[first] = preferred.get(first, 0) + 1
        for replica in shape.replicas:
            replicas[str(replica)] = replicas.get(str(replica), 0) + 1
        under += partition.shape.under
    return {
        "partitions": len(cluster.partitions),
        "topics": len(cluster.topics) if whole else 0,
        "leaderless": leaders.get(str(NO_LEADER), 0),
        "leaderless_stopped": stopped,
        "under_min_isr": under,
        "leaders": leaders,
        "preferred": preferred,
        "replicas": replicas,
        "brokers": [b._asdict() for b in cluster.brokers.values()] if whole else [],
        "features": cluster.features if whole else {},
    }
