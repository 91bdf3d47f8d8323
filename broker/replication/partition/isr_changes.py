"""Changes of a partition's ISR: the leader's proposals, and the controller's answers to them.

`broker.replication.partition.isr` has the meaning of the answers, `remote_replica` the rule by
which a follower is in sync.
"""

from __future__ import annotations

from broker.replication.partition.effects import (
    ISR_CHANGED,
    LOCAL_LOGS_MOVED,
    NOTHING,
    Effects,
    Propose,
)
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.isr import (
    ROLLED_BACK,
    IsrMember,
    IsrProposal,
    PartitionStateNow,
    asks_again,
)
from broker.replication.partition.partition import NO_EPOCH, Partition
from broker.replication.partition.remote_replica import RemoteReplica, laggards
from broker.replication.partition.role import ReplicaRole
from broker.replication.subscriptions.notifications import LowWatermarkMoved
from protocol.errors import ErrorCode
from runtime.marks import mark


def sends(partition: Partition, proposal: IsrProposal) -> bool:
    """Return whether this leader still wants `proposal`, when a request is built. If so, the
    proposal is sent, and stays as it is until its answer."""
    if partition.proposal is not proposal:
        return False
    partition.sent_proposal = proposal
    return True


def expire_isr(partition: Partition, now_ms: float, lag_max_ms: float) -> Effects:
    """Propose an ISR without its laggards. A leader alone in its ISR that is still recovering
    proposes that ISR as recovered. Call it every half `replica.lag.time.max.ms`."""
    if partition.role is not ReplicaRole.LEADER or partition.proposal is not None:
        return NOTHING
    if len(partition.isr) < 2:
        return propose_isr(partition, partition.isr) if partition.recovering else NOTHING
    out = laggards(
        partition.remote,
        partition.isr,
        leader_end=partition.log.log_end_offset,
        now_ms=now_ms,
        lag_max_ms=lag_max_ms,
    )
    # A member that is no longer a replica does not belong in the ISR (KAFKA-9672).
    out |= partition.isr.difference(partition.replicas)
    if not out:
        return NOTHING
    mark("replication.isr-shrinks")
    return propose_isr(partition, partition.isr - out)


def isr_answered(
    partition: Partition, proposal: IsrProposal, error: ErrorCode, state: PartitionStateNow
) -> Effects:
    """Apply the controller's answer to a proposal. See `broker.replication.partition.isr`."""
    if partition.proposal is not proposal:
        return NOTHING  # a newer image has already settled this proposal
    if error is ErrorCode.NONE:
        if (
            state.leader_epoch == partition.leader_epoch
            and state.partition_epoch >= partition.partition_epoch
        ):
            partition.proposal = None
            partition.recovering = False  # every proposal marks the leader as recovered
            isr = frozenset(state.isr)
            if state.partition_epoch > partition.partition_epoch:
                shrinks = not partition.isr <= isr
                partition.unread_isr |= shrinks or len(partition.isr) < partition.effective_min_isr
            partition.partition_epoch = state.partition_epoch
            effects = set_isr(partition, isr, counted=True) + ISR_CHANGED
            if partition.local_logs is not None:
                effects += LOCAL_LOGS_MOVED
            return effects + maybe_advance_high_watermark(partition)
        return NOTHING
    partition.counters.failed_isr_updates += 1
    if error in ROLLED_BACK:
        mark("replication.isr-rolled-back")
        partition.proposal = None
        partition.maximal_isr = partition.isr
        # A proposed follower may be at rest: it joins at the next check if it is eligible then.
        return ISR_CHANGED + maybe_advance_high_watermark(partition)
    if asks_again(error):
        mark("replication.isr-retried")
        return NOTHING
    mark("replication.isr-superseded")
    partition.refused_proposal = proposal
    return (
        keep_proposal(partition, proposal)
        if proposal.partition_epoch < partition.partition_epoch
        else NOTHING
    )


def maybe_expand(partition: Partition, replica_id: int, remote: RemoteReplica) -> Effects:
    """Propose a follower that has caught up. A proposal that is not yet sent takes it in: of
    ten thousand partitions with a new leader, most wait long enough for all their followers."""
    proposal = partition.proposal
    if (proposal is None or proposal is not partition.sent_proposal) and remote.may_join(
        partition.log.high_watermark, partition.leader_epoch_start
    ):
        wanted = partition.isr if proposal is None else proposal.broker_ids
        return propose_isr(partition, wanted | {replica_id})
    return NOTHING


def proposal_of(partition: Partition, members: frozenset[int]) -> IsrProposal:
    epochs = {replica_id: remote.broker_epoch for replica_id, remote in partition.remote.items()}
    return IsrProposal(
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(IsrMember(member, epochs.get(member, NO_EPOCH)) for member in sorted(members)),
    )


def propose_isr(partition: Partition, members: frozenset[int]) -> Effects:
    proposal = proposal_of(partition, members)
    partition.proposal = proposal
    partition.maximal_isr = partition.isr | members
    return (Propose(proposal),)


def keep_proposal(partition: Partition, proposal: IsrProposal) -> Effects:
    """Keep `proposal` after a report has moved the partition epoch: unchanged if the controller
    may still accept it, otherwise proposed again in the present epoch."""
    if proposal is partition.sent_proposal and proposal is not partition.refused_proposal:
        partition.proposal = proposal
        partition.maximal_isr = partition.isr | proposal.broker_ids
        return NOTHING
    mark("replication.isr-behind-report")
    return propose_isr(partition, proposal.broker_ids)


def set_isr(partition: Partition, isr: frozenset[int], *, counted: bool) -> Effects:
    if counted:
        partition.counters.isr_shrinks += not partition.isr.issubset(isr)
        partition.counters.isr_expands += not partition.isr.issuperset(isr)
    partition.isr = partition.maximal_isr = isr
    return low_watermark_moved(partition)


def low_watermark_moved(partition: Partition) -> Effects:
    return (
        (LowWatermarkMoved(partition.low_watermark),)
        if partition.subscriptions.low_watermark_waits
        else NOTHING
    )
