"""AlterPartition: validation and application of the ISRs that leaders propose.

A proposal counts only for the leader epoch and partition epoch in which it was made. Its members
must be fit for an ISR now: registered, unfenced, not shutting down (KIP-841), with the broker epoch
of their fetches (KIP-903). A refusal leaves the partition unchanged and gives the error; the leader
returns to the committed state.

A member whose recorded log directory is offline has caught up in another one. If its broker has
only one directory, that one is recorded with the ISR. If it has several, the broker must report the
directory first (AssignReplicasToDirs).

An accepted proposal always moves the partition epoch, also if the ISR is the same as before.

Since version 4 a proposal contains the members' local-log stats (KIP-1303). They are stored if the
topic has a threshold for them. A proposal of the same ISR may only report stats. Such a report must
not block a change of the ISR that the leader proposed before it. If that change contains stats, it
is accepted after the report, too (`report_epochs`).
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
    """A proposed ISR member.

    epoch: broker epoch, -1 if the leader does not send it (before version 3). stats: of its local
    log (from version 4 on).
    """

    broker_id: int
    epoch: int
    stats: LocalLogStats = NOTHING_KNOWN


class IsrAnswer(NamedTuple):
    """The result for one partition; `state` is the partition afterwards, None with an error."""

    partition_id: int
    error: ErrorCode
    state: PartitionImage | None


class TopicIsrAnswer(NamedTuple):
    topic_id: bytes
    partitions: tuple[IsrAnswer, ...]


def decide_alter_partition(
    view: ControllerView, request: AlterPartitionRequest
) -> Decision[tuple[TopicIsrAnswer, ...]]:
    """Judge each proposal independently.

    Raises:
        ApiError: STALE_BROKER_EPOCH, for the request as a whole.
    """
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
        outcomes.append(TopicIsrAnswer(topic_data.topic_id, tuple(partitions)))
    return Decision(tuple(records), tuple(outcomes))


def _refused(proposal: Proposal, error: ErrorCode) -> IsrAnswer:
    return IsrAnswer(proposal.partition_index, error, None)


def proposed_members(proposal: Proposal) -> tuple[ProposedMember, ...]:
    """Return the proposed ISR from the field that the request's version uses."""
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
) -> tuple[IsrAnswer, tuple[PartitionChangeRecord, PartitionImage] | None]:
    """Return the outcome, and the change with the partition after it, None without one."""
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
        reported_logs=_local_logs(elections, topic, current, members),
    )
    if change is None:
        return IsrAnswer(proposal.partition_index, ErrorCode.NONE, current), None
    after = merge_partition_change(current, change.record, change.local_logs)
    if after.leader != broker_id:
        # The proposal completed a reassignment that removes the proposer.
        mark("controller.isr-ends-leadership")
        return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED), (change.record, after)
    return IsrAnswer(proposal.partition_index, ErrorCode.NONE, after), (change.record, after)


def _epoch_error(
    current: PartitionImage,
    broker_id: int,
    proposal: Proposal,
    members: Sequence[ProposedMember],
    reported: int,
) -> ErrorCode | None:
    """Return the error of a proposal's epochs, None if they are valid.

    An epoch ahead of this controller's means that the controller is behind (KAFKA-14154).

    Args:
        reported: the partition epoch, if a report made the newest change.
    """
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
    """Return whether only a report of the same leader followed this proposed change.

    Only a leader that sends stats knows that such a change is still open.
    """
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
    # A recovering leader is the only ISR member, and one that has recovered does not start again.
    if recovering and (len(isr) > 1 or current.recovery_state == LeaderRecoveryState.RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None


def _directories(
    view: ControllerView, current: PartitionImage, members: Sequence[ProposedMember]
) -> tuple[bytes, ...] | None:
    """Return the directories if these members are in sync; None if they are unchanged."""
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
    """Return the local-log stats after this proposal; None if it has none or the topic no
    threshold.

    Members are registered with these broker epochs: others are not fit to be in an ISR.
    """
    if elections.rules(topic).local_logs is None or not _tells(members):
        return None
    return with_report(current.local_logs, members, elections.view.now_ms)


def _tells(members: Sequence[ProposedMember]) -> bool:
    """Return whether the proposal contains local-log stats of any member."""
    return any(member.stats != NOTHING_KNOWN for member in members)


def isr_eligibility(
    view: ControllerView, current: PartitionImage, member: ProposedMember
) -> Eligibility:
    """Return whether the broker may be in the ISR.

    It is stricter than eligibility to lead: the broker must have fetched in its current
    incarnation.
    """
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
