"""Local logs of replicas as the log tells them, and whom an election passed over (KIP-1303).

A controller that prefers replicas with enough writes down what leaders reported (a private tag of
partition records), and does not write down whom it passed over. That follows from the report, the
thresholds of topic or cluster in the log, and the time of the batch. Thresholds of a properties
file are in no log: by them nobody is seen to be passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from audit.state.cluster import ClusterState, PartitionState
from audit.state.elections import BrokerEvent, ElectionKind
from audit.state.shapes import ShapeKey
from metalog.image.local_log import UNKNOWN, LocalLogThresholds, ReplicaLocalLog, judge
from protocol.ids import DIRECTORY_LOST, RESERVED_UUIDS, uuid_to_text

SPAN_MS = "leader.election.eligible.local.log.ms"
SIZE_BYTES = "leader.election.eligible.local.log.bytes"
LOCAL_LOG = "local-log"
"""The reason of an election that passed somebody over."""


class LocalLogRow(NamedTuple):
    """What was known of a replica. `span_ms` is how far it went back, None where its begin was not
    known; so is `size_bytes`. `enough` says whether that was enough, and `verdict` why."""

    broker: int
    broker_epoch: int
    span_ms: int | None
    size_bytes: int | None
    reported_ms: int
    enough: bool
    verdict: str


def rows(cluster: ClusterState, partition: PartitionState, now_ms: int) -> list[LocalLogRow]:
    """One for each replica of which something is known."""
    if not partition.local_logs:
        return []
    thresholds = _thresholds(cluster, partition.topic.name)
    found = []
    for one in partition.local_logs.entries:
        start_ms, size = one.stats
        verdict = judge(one.stats, thresholds, now_ms)
        found.append(
            LocalLogRow(
                one.broker_id,
                one.broker_epoch,
                None if start_ms == UNKNOWN else now_ms - start_ms,
                None if size == UNKNOWN else size,
                one.reported_ms,
                verdict.enough,
                verdict.value,
            )
        )
    return found


def passed_over(
    cluster: ClusterState,
    events: Mapping[int, BrokerEvent],
    partition: PartitionState,
    kind: ElectionKind,
    now_ms: int,
) -> tuple[int, ...]:
    """Replicas before the new leader in the assignment that could have led as cleanly and had too
    little. None where the leader has too little itself: then nobody was preferred.

    `partition` is as the election leaves it; `events` are what the same batch did to brokers.
    """
    if not partition.local_logs:
        return ()
    thresholds = _thresholds(cluster, partition.topic.name)
    shape = partition.shape.key
    short = {
        one.broker_id
        for one in partition.local_logs.entries
        if _is_of_this_life(cluster, one) and not judge(one.stats, thresholds, now_ms).enough
    }
    if shape.leader in short or shape.leader not in shape.replicas:
        return ()
    rivals = _rivals(shape, kind)
    return tuple(
        replica
        for replica in shape.replicas[: shape.replicas.index(shape.leader)]
        if replica in short and replica in rivals and _could_lead(cluster, events, shape, replica)
    )


def _thresholds(cluster: ClusterState, topic: str) -> LocalLogThresholds:
    values = (cluster.setting(topic, key) or "" for key in (SPAN_MS, SIZE_BYTES))
    return LocalLogThresholds(*(int(value) if value.isdigit() else -1 for value in values))


def _is_of_this_life(cluster: ClusterState, one: ReplicaLocalLog) -> bool:
    broker = cluster.brokers.get(one.broker_id)
    return broker is not None and broker.epoch == one.broker_epoch


def _rivals(shape: ShapeKey, kind: ElectionKind) -> tuple[int, ...]:
    """Who stood for an election of this kind beside the leader. Where logs were compared, or an
    operator named the leader, what is kept locally plays no part."""
    if kind in (ElectionKind.ISR, ElectionKind.PREFERRED):
        return shape.isr
    if kind is ElectionKind.ELR:
        return shape.elr
    return shape.replicas if kind is ElectionKind.UNCLEAN else ()


def _could_lead(
    cluster: ClusterState, events: Mapping[int, BrokerEvent], shape: ShapeKey, broker_id: int
) -> bool:
    event = events.get(broker_id)
    broker = cluster.brokers[broker_id]
    if event is not None and event is not BrokerEvent.UNFENCED:
        return False
    if event is None and (broker.fenced or broker.shutting_down):
        return False
    directory = shape.directories[shape.replicas.index(broker_id)] if shape.directories else b""
    if directory in RESERVED_UUIDS or not directory:
        return directory != DIRECTORY_LOST
    return not broker.directories or uuid_to_text(directory) in broker.directories
