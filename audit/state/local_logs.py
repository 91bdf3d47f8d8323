"""Local logs of replicas in the metadata, and the replicas that an election passed over (KIP-1303).

A controller that prefers replicas with enough local data writes the leaders' reports to the log (a
private tag of partition records). It does not write the replicas that it passed over. These follow
from the report, the thresholds of topic or cluster in the log, and the time of the batch.
Thresholds in a properties file are not in the log, so their effect is not detected.
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
"""The reason of an election that passed a replica over."""


class LocalLogRow(NamedTuple):
    """The known local log of a replica.

    `span_ms` is how far it goes back; it and `size_bytes` are None if unknown. `enough` is whether
    it meets the thresholds, and `verdict` is the reason.
    """

    broker: int
    broker_epoch: int
    span_ms: int | None
    size_bytes: int | None
    reported_ms: int
    enough: bool
    verdict: str


def rows(cluster: ClusterState, partition: PartitionState, now_ms: int) -> list[LocalLogRow]:
    """Return a row for each replica with a known local log."""
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
    """Return the replicas that an election passed over because of their local logs.

    They precede the new leader in the assignment and could have led as cleanly. The result is empty
    if the leader has too little itself, because then no replica was preferred. `partition` is in
    the state after the election; `events` are the broker events of the same batch.
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
    """Return the candidates of an election of this kind, besides the leader.

    Local logs have no influence if logs were compared, or if an operator named the leader.
    """
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
