"""AlterPartition: ISRs that leaders propose, compared and set.

A proposal counts only for the leader epoch and partition epoch it was made in, and only with
members that are fit to be in an ISR now: registered, unfenced, not shutting down (KIP-841), with
the broker epoch the leader saw them fetch with (KIP-903). Any refusal leaves the partition as it
is and says why; the leader goes back to the committed state.

A member whose log directory on record is offline has caught up in another one. Where its broker has
only one, that is written down with the ISR; where it has several, the broker must say which first
(AssignReplicasToDirs).

An accepted proposal always moves the partition epoch, also when the ISR is the same as before.

Since version 4 it says what members have of the log locally (KIP-1303). That is kept where the
topic has a threshold for it; a proposal of the same ISR may be there for that alone. Such a report
holds up no change of the ISR: one that its leader proposed before it, and that says what its
members have, is taken behind it, too (`report_epochs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from controller.brokers.registration import check_broker_epoch
from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext
from controller.elections.eligibility import (
    Eligibility,
    Eligible,
    Ineligible,
    Reason,
    default_directory,
    is_online,
)
from controller.elections.local_logs import with_report
from controller.elections.partition_change import Target
from controller.topics.reassignments import is_reassigning
from metalog.image.local_log import NOTHING_KNOWN, LocalLogStats, LocalLogTable
from metalog.image.replay import merge_partition_change
from metalog.image.values import LeaderRecoveryState, PartitionImage, TopicImage
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord
from runtime.marks import mark

Proposal: TypeAlias = AlterPartitionRequest.PartitionData

UNKNOWN_BROKER_EPOCH = -1
RECOVERY_STATES: Final = frozenset(map(int, LeaderRecoveryState))


class ProposedMember(NamedTuple):
    """A proposed ISR member; `epoch` is -1 where the leader does not say (before version 3).
    `stats` is what it has locally (from version 4 on)."""

    broker_id: int
    epoch: int
    stats: LocalLogStats = NOTHING_KNOWN


class PartitionOutcome(NamedTuple):
    """`state` is the partition afterwards, None with an error."""

    partition_id: int
    error: ErrorCode
    state: PartitionImage | None


class TopicOutcome(NamedTuple):
    topic_id: bytes
    partitions: tuple[PartitionOutcome, ...]


def decide_alter_partition(
    view: ControllerView, request: AlterPartitionRequest
) -> Decision[tuple[TopicOutcome, ...]]:
    """Judge each proposal alone. Raises STALE_BROKER_EPOCH for the request as a whole."""
    check_broker_epoch(view, request.broker_id, request.broker_epoch)
    elections = ElectionContext(view)
    records: list[MetadataRecord] = []
    outcomes = []
    # A request that names a partition twice must not judge both against the same state.
    changed: dict[tuple[bytes, int], PartitionImage] = {}
    target_of = cache(_target)
    for topic_data in request.topics:
        topic = view.image.topics.by_id.get(topic_data.topic_id)
        partitions = []
        for proposal in topic_data.partitions:
            key = (topic_data.topic_id, proposal.partition_index)
            if topic is None:
                partitions.append(_refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            current = changed.get(key, topic.partitions.get(proposal.partition_index))
            outcome, change = _alter(
                elections, target_of, topic, current, request.broker_id, proposal
            )
            if change is not None:
                record, changed[key] = change
                records.append(record)
            partitions.append(outcome)
        outcomes.append(TopicOutcome(topic_data.topic_id, tuple(partitions)))
    return Decision(tuple(records), tuple(outcomes))


def _refused(proposal: Proposal, error: ErrorCode) -> PartitionOutcome:
    return PartitionOutcome(proposal.partition_index, error, None)


def proposed_members(proposal: Proposal) -> tuple[ProposedMember, ...]:
    """The proposed ISR, whichever field the version puts it in."""
    if proposal.new_isr_with_epochs:
        return tuple(
            ProposedMember(
                m.broker_id,
                m.broker_epoch,
                LocalLogStats(m.local_log_start_timestamp, m.local_log_size_bytes),
            )
            for m in proposal.new_isr_with_epochs
        )
    return tuple(ProposedMember(broker_id, UNKNOWN_BROKER_EPOCH) for broker_id in proposal.new_isr)


def _target(
    isr: tuple[int, ...], directories: tuple[bytes, ...] | None, recovery_state: int
) -> Target:
    state = LeaderRecoveryState(recovery_state)
    return Target(isr=isr, directories=directories, recovery_state=state)


def _alter(
    elections: ElectionContext,
    target_of: Callable[[tuple[int, ...], tuple[bytes, ...] | None, int], Target],
    topic: TopicImage,
    current: PartitionImage | None,
    broker_id: int,
    proposal: Proposal,
) -> tuple[PartitionOutcome, tuple[PartitionChangeRecord, PartitionImage] | None]:
    """The outcome, and the change with the partition after it, if there is one."""
    if current is None:
        return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    view, members = elections.view, proposed_members(proposal)
    reported = view.report_epochs.of(topic.id, proposal.partition_index)
    error = _epoch_error(current, broker_id, proposal, members, reported) or _isr_error(
        current, members, proposal
    )
    if error is None and any(
        isinstance(isr_eligibility(view, current, member), Ineligible) for member in members
    ):
        error = ErrorCode.INELIGIBLE_REPLICA
        mark("controller.isr-ineligible")
    if error is not None:
        return _refused(proposal, error), None
    change = elections.change_partition(
        topic,
        proposal.partition_index,
        current,
        Cause.REASSIGNMENT if is_reassigning(current) else Cause.ISR_CHANGE,
        target=target_of(
            tuple([m.broker_id for m in members]),
            _directories(view, current, members),
            proposal.leader_recovery_state,
        ),
        touch=True,
        told=_local_logs(elections, topic, current, members),
    )
    if change is None:
        return PartitionOutcome(proposal.partition_index, ErrorCode.NONE, current), None
    after = merge_partition_change(current, change.record, change.local_logs)
    if after.leader != broker_id:
        # The proposal completed a reassignment that leaves the proposer out.
        mark("controller.isr-ends-leadership")
        return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED), (change.record, after)
    return PartitionOutcome(proposal.partition_index, ErrorCode.NONE, after), (change.record, after)


def _epoch_error(
    current: PartitionImage,
    broker_id: int,
    proposal: Proposal,
    members: Sequence[ProposedMember],
    reported: int,
) -> ErrorCode | None:
    """An epoch ahead of ours means that we are the one who is behind (KAFKA-14154). `reported` is
    the partition epoch that the newest report has made."""
    if (
        proposal.leader_epoch > current.leader_epoch
        or proposal.partition_epoch > current.partition_epoch
    ):
        mark("controller.isr-behind")
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < current.leader_epoch:
        mark("controller.isr-epoch-fenced")
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != current.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < current.partition_epoch:
        if not _goes_past_report(current, proposal, members, reported):
            mark("controller.isr-version-stale")
            return ErrorCode.INVALID_UPDATE_VERSION
        mark("controller.isr-past-report")
    return None


def _goes_past_report(
    current: PartitionImage,
    proposal: Proposal,
    members: Sequence[ProposedMember],
    reported: int,
) -> bool:
    """Whether nothing but a report of its own leader came since this change was proposed. Only a
    leader that says what members have knows that such a change is still open."""
    return (
        proposal.partition_epoch + 1 == current.partition_epoch == reported
        and _tells(members)
        and {member.broker_id for member in members} != set(current.isr)
    )


def _isr_error(
    current: PartitionImage, members: Sequence[ProposedMember], proposal: Proposal
) -> ErrorCode | None:
    isr = [member.broker_id for member in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(current.replicas):
        return ErrorCode.INVALID_REQUEST
    if current.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state not in RECOVERY_STATES:
        return ErrorCode.INVALID_REQUEST
    recovering = proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING
    # A leader that recovers is alone, and one that has recovered does not start again.
    if recovering and (len(isr) > 1 or current.recovery_state == LeaderRecoveryState.RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None


def _directories(
    view: ControllerView, current: PartitionImage, members: Sequence[ProposedMember]
) -> tuple[bytes, ...] | None:
    """Where the replicas are, if these are in sync; None: where they were."""
    brokers, in_sync = view.image.cluster.brokers, {member.broker_id for member in members}
    found = tuple(
        default_directory(brokers[replica])
        if replica in in_sync and not is_online(brokers[replica], directory)
        else directory
        for replica, directory in zip(current.replicas, current.directories, strict=True)
    )
    return None if found == current.directories else found


def _local_logs(
    elections: ElectionContext,
    topic: TopicImage,
    current: PartitionImage,
    members: Sequence[ProposedMember],
) -> LocalLogTable | None:
    """What is known of local logs with this proposal; None where it says nothing, or nobody asks.

    Members are of the lives that are registered: others are not fit to be in an ISR.
    """
    if elections.rules(topic).local_logs is None or not _tells(members):
        return None
    return with_report(current.local_logs, members, elections.view.now_ms)


def _tells(members: Sequence[ProposedMember]) -> bool:
    """Whether the proposal says of anybody what it has of the log locally."""
    return any(member.stats != NOTHING_KNOWN for member in members)


def isr_eligibility(
    view: ControllerView, current: PartitionImage, member: ProposedMember
) -> Eligibility:
    """Whether the broker may be in the ISR: a stricter question than whether it may lead,
    because it also asks for the life in which the broker fetched."""
    broker = view.image.cluster.brokers.get(member.broker_id)
    if broker is None:
        return Ineligible(Reason.NOT_REGISTERED)
    if broker.fenced:
        return Ineligible(Reason.FENCED)
    if broker.in_controlled_shutdown:
        return Ineligible(Reason.SHUTTING_DOWN)
    if member.epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
        return Ineligible(Reason.OTHER_EPOCH)
    directory = current.directory_of(member.broker_id)
    offline = directory is not None and not is_online(broker, directory)
    if offline and len(broker.directories) > 1:
        return Ineligible(Reason.DIRECTORY_OFFLINE)
    return Eligible()
