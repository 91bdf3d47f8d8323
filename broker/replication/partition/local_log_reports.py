"""Local logs of a partition's replicas: what followers report, and what the leader reports.

`LocalLogs` has the rules for reporting (KIP-1303). A report is a proposal of the present ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.replication.partition.effects import LOCAL_LOGS_MOVED, NOTHING, Effects
from broker.replication.partition.isr import IsrProposal, PartitionStateNow
from broker.replication.partition.isr_changes import keep_proposal, proposal_of
from broker.replication.partition.local_logs import MemberLocalLog, own_stats, start_ms_of
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from metalog.image.local_log import LocalLogStats
from protocol.errors import ErrorCode
from runtime.marks import mark


def follower_stated(
    partition: Partition,
    replica_id: int,
    *,
    broker_epoch: int,
    local_start_ms: int,
    local_bytes: int,
    own_epoch: Callable[[], int],
) -> Effects:
    """Note the local-log stats in a follower's fetch that was accepted. `own_epoch` returns
    this broker's epoch."""
    logs, remote, log = partition.local_logs, partition.remote.get(replica_id), partition.log
    if (
        logs is None
        or remote is None
        or not remote.stated(broker_epoch, local_start_ms, local_bytes)
    ):
        return NOTHING
    if logs.is_settled(
        replica_id, broker_epoch, remote.local_start_ms, remote.local_bytes
    ) and logs.is_settled(partition.node_id, own_epoch(), start_ms_of(log), log.size_bytes):
        return NOTHING
    return LOCAL_LOGS_MOVED


def members_local_logs(
    partition: Partition, members: Iterable[int], own_epoch: int
) -> list[MemberLocalLog]:
    """Return the local-log stats of members: the leader's read from its log now, a follower's
    as last reported in a Fetch."""
    found = []
    for member in sorted(members):
        remote = partition.remote.get(member)
        if remote is not None:
            stats = LocalLogStats(remote.local_start_ms, remote.local_bytes)
            found.append(MemberLocalLog(member, remote.broker_epoch, stats))
        elif member == partition.node_id:
            found.append(MemberLocalLog(member, own_epoch, own_stats(partition.log)))
    return found


def has_enough_locally(partition: Partition, follower: int, wall_ms: int) -> bool:
    """Return whether a follower has as much locally as its topic requires, according to its
    last report."""
    logs, remote = partition.local_logs, partition.remote.get(follower)
    if logs is None or remote is None:
        return True
    return logs.is_enough(LocalLogStats(remote.local_start_ms, remote.local_bytes), wall_ms)


def report_due(
    partition: Partition, now_ms: float, wall_ms: int, own_epoch: int, *, sweep: bool = False
) -> bool:
    """Return whether to report the members' local logs to the controller now, without an ISR
    change: at once, or in a `sweep` because the interval is over. A partition with one replica
    never reports, as no other replica could be preferred."""
    logs = partition.local_logs
    if (
        logs is None
        or partition.role is not ReplicaRole.LEADER
        or partition.proposal is not None
        or len(partition.replicas) < 2
        or not logs.may_report(now_ms)
    ):
        return False
    members = members_local_logs(partition, partition.isr, own_epoch)
    return any(logs.crosses(member, wall_ms) for member in members) or (
        sweep and logs.is_due(members, now_ms)
    )


def report_to_send(partition: Partition) -> IsrProposal | None:
    """Return the report to send now, or None if an ISR change, which contains the same values,
    came first. The caller must call `report_answered` afterwards."""
    logs = partition.local_logs
    if (
        logs is None
        or logs.in_flight is not None
        or partition.role is not ReplicaRole.LEADER
        or partition.proposal is not None
    ):
        return None
    logs.in_flight = proposal_of(partition, partition.isr)
    return logs.in_flight


def local_logs_to_send(
    partition: Partition, proposal: IsrProposal, now_ms: float, own_epoch: int
) -> list[MemberLocalLog]:
    """Return the local-log stats to send with `proposal`, whose request is being built."""
    logs = partition.local_logs
    if logs is None:
        return []
    partition.reporting_proposal = proposal
    members = members_local_logs(partition, proposal.broker_ids, own_epoch)
    return logs.tell(proposal.members, members, own_epoch, now_ms)


def report_answered(
    partition: Partition,
    report: IsrProposal,
    error: ErrorCode | None,
    state: PartitionStateNow,
    now_ms: float,
) -> Effects:
    """Apply the controller's answer to a report; `error`: None without an answer. The ISR
    stays, and so does a change of it that was proposed in the meantime."""
    logs = partition.local_logs
    if logs is None or logs.in_flight is not report:
        return NOTHING  # a newer image has already settled this report
    accepted = error is ErrorCode.NONE and state.leader_epoch == partition.leader_epoch
    logs.over(now_ms, accepted=accepted)
    if not accepted:
        mark("replication.report-refused")
    if (
        accepted
        and state.partition_epoch > partition.partition_epoch
        and partition.isr == frozenset(state.isr)
    ):
        partition.partition_epoch = state.partition_epoch
        partition.unread_isr |= len(partition.isr) < partition.effective_min_isr
        if partition.proposal is not None:
            return keep_proposal(partition, partition.proposal)
    return LOCAL_LOGS_MOVED
