"""Roles of a replica: each change of its leader, leader epoch or ISR by the metadata.

Each function leaves the partition in a consistent state and returns the effects of the change in
the order in which coordinators, fetchers and the tier rely on them.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.replication.partition.effects import (
    INTERRUPTED,
    ISR_CHANGED,
    LOCAL_LOGS_MOVED,
    NOTHING,
    Effects,
    Elected,
    Followed,
    Resigned,
    Stopped,
)
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.isr import IsrProposal, outlasting
from broker.replication.partition.isr_changes import keep_proposal, set_isr
from broker.replication.partition.partition import Partition
from broker.replication.partition.remote_replica import NEVER_MS, RemoteReplica
from broker.replication.partition.role import TRANSITIONS, ReplicaRole
from broker.replication.subscriptions.notifications import Released
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated


def become_leader(
    partition: Partition,
    *,
    leader_epoch: int,
    partition_epoch: int,
    replicas: tuple[int, ...],
    isr: Iterable[int],
    now_ms: float,
) -> Effects:
    """Lead in `leader_epoch`, or apply a new ISR within it."""
    effects: Effects = NOTHING
    new_epoch = leader_epoch != partition.leader_epoch or partition.role is not ReplicaRole.LEADER
    _check_epochs(partition, leader_epoch, partition_epoch)
    enter_role(partition, ReplicaRole.LEADER)
    partition.unread_isr = False
    wanted: IsrProposal | None = None
    if new_epoch or partition_epoch != partition.partition_epoch:
        # By now any proposal was accepted or refused, except an ISR change that outlasts a
        # report.
        goes_past = (
            partition.local_logs is not None or partition.proposal is partition.reporting_proposal
        )
        now = frozenset(isr)
        if goes_past and not new_epoch and now == partition.isr:
            wanted = outlasting(partition.proposal, partition_epoch, now, replicas)
        partition.proposal = None
        effects = set_isr(partition, now, counted=not new_epoch)
        if partition.local_logs is not None:
            partition.local_logs.in_flight = None
    partition.leader_id = partition.node_id
    partition.leader_epoch = leader_epoch
    partition.partition_epoch = partition_epoch
    partition.replicas = replicas
    if new_epoch:
        partition.log.history.lead(leader_epoch)
        partition.unshown = 0
        partition.leads_since_ms = now_ms
        partition.leader_epoch_start = partition.log.log_end_offset
        partition.uncommitted.clear()
        partition.stable_bytes.clear()
        partition.remote = {}  # values that followers reported to an earlier leader do not count
        if partition.local_logs is not None:
            partition.local_logs.begin()
    partition.remote = {
        replica_id: partition.remote.get(replica_id)
        or RemoteReplica(now_ms if replica_id in partition.isr else NEVER_MS)
        for replica_id in replicas
        if replica_id != partition.node_id
    }
    if new_epoch:
        # As in Kafka, coordinators keep their loaded state: the log is still this broker's own.
        effects += (*INTERRUPTED, Elected())
    elif partition.subscriptions.followers:
        effects += ISR_CHANGED
    if wanted is not None:
        effects += keep_proposal(partition, wanted)
    elif partition.local_logs is not None:
        effects += LOCAL_LOGS_MOVED
    return effects + maybe_advance_high_watermark(partition)


def become_follower(
    partition: Partition,
    *,
    leader_id: int,
    leader_epoch: int,
    partition_epoch: int,
    replicas: tuple[int, ...],
    isr: Iterable[int],
) -> Effects:
    """Follow `leader_id`, or no leader if it is -1."""
    led = partition.is_leader
    changed = leader_epoch != partition.leader_epoch or leader_id != partition.leader_id
    _check_epochs(partition, leader_epoch, partition_epoch)
    enter_role(partition, ReplicaRole.FOLLOWER)
    partition.leader_id = leader_id
    partition.leader_epoch = leader_epoch
    partition.partition_epoch = partition_epoch
    partition.replicas = replicas
    partition.proposal = None
    partition.unread_isr = False
    partition.isr = partition.maximal_isr = frozenset(isr)
    partition.remote = {}
    if changed:
        partition.unshown = 0
        # Drop the epoch that starts at the log end: this broker led in it without appending, so
        # no other replica has it.
        partition.log.truncate_to(partition.log.log_end_offset)
        effects = _released(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return effects + ((Resigned(leader_epoch), Followed()) if led else (Followed(),))
    return NOTHING


def become_offline(partition: Partition) -> Effects:
    """Take the replica offline after its log failed. Nothing more is appended: a second write
    could hide the loss of the first."""
    enter_role(partition, ReplicaRole.OFFLINE)
    return (*_ended(partition, ErrorCode.KAFKA_STORAGE_ERROR), Stopped())


def become_deleted(partition: Partition) -> Effects:
    """Stop the replica: the topic was deleted or the replica moved away."""
    led = partition.is_leader
    enter_role(partition, ReplicaRole.DELETED)
    effects = _ended(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return effects + ((Resigned(None), Stopped()) if led else (Stopped(),))


def _released(partition: Partition, error: ErrorCode) -> Effects:
    partition.uncommitted.clear()
    partition.stable_bytes.clear()
    return (Released(error),)


def _ended(partition: Partition, error: ErrorCode) -> Effects:
    # An answer that is still to come has no effect on a replica that has ended.
    partition.proposal = None
    if partition.local_logs is not None:
        partition.local_logs.in_flight = None
    return _released(partition, error)


def _check_epochs(partition: Partition, leader_epoch: int, partition_epoch: int) -> None:
    if leader_epoch < partition.leader_epoch or partition_epoch < partition.partition_epoch:
        raise InvariantViolated(
            f"{partition.topic}-{partition.index}: epochs went back from "
            f"{partition.leader_epoch}/{partition.partition_epoch} "
            f"to {leader_epoch}/{partition_epoch}"
        )


def enter_role(partition: Partition, role: ReplicaRole) -> None:
    """Change the role. Raises InvariantViolated for a pair that is not in `TRANSITIONS`."""
    if (partition.role, role) not in TRANSITIONS:
        raise InvariantViolated(
            f"{partition.topic}-{partition.index}: {partition.role.name} -> {role.name}"
        )
    partition.role = role
