"""ElectLeaders: preferred and unclean elections that an operator requests (KIP-460).

A preferred election moves leadership to the first replica of the election order if that is clean.
An unclean election gives a leaderless partition any live leader. The answer contains the result of
each partition; a refusal contains the reason for each broker.

If no other replica can lead, an unclean election takes a live replica whose log directory is gone.
It starts with whatever its broker has now, mostly nothing. Only an operator can request that. It
restores a partition whose only replica was on a disk that is permanently lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from controller.decision import ControllerView, Decision, check_record_count
from controller.elections.cause import Cause
from controller.elections.context import AS_IT_IS, ElectionContext
from controller.elections.election import Wish
from controller.elections.eligibility import (
    DIRECTORY_OFFLINE,
    ReplicaEligibility,
    default_directory,
    explain,
)
from controller.elections.partition_change import PartitionChange, Target
from metalog.image.values import NO_LEADER, PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.schema import MetadataRecord


class ElectionType(IntEnum):
    """The request's election type; `recovery_requests` handles those from 2 on (KIP-966)."""

    PREFERRED = 0
    UNCLEAN = 1
    LONGEST_LOG_AGGRESSIVE = 2
    LONGEST_LOG_BALANCED = 3
    DESIGNATION = 4


class ElectionOutcome(NamedTuple):
    """The result for one partition; `error` is ErrorCode.NONE if a leader was elected."""

    topic: str
    partition_id: int
    error: ErrorCode
    message: str | None = None


def decide_elect_leaders(
    view: ControllerView, request: ElectLeadersRequest, *, limit: int | None = None
) -> Decision[tuple[ElectionOutcome, ...]]:
    """Elect leaders in the named partitions, or in all of them if none are named.

    For all partitions, those that need no election are left out of the reply. At most `limit`
    partitions are served. Desired leaders have no effect here: they belong to a designation.

    Raises:
        ApiError: INVALID_REQUEST if the type does not exist, or if the number of desired leaders
            differs from that of partitions; POLICY_VIOLATION.
    """
    if request.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{request.election_type} is not a type of election"
        )
    election = ElectionType(request.election_type)
    for named in request.topic_partitions or ():
        check_desired_leaders(named)
    elections = ElectionContext(view)
    everything = request.topic_partitions is None
    records: list[MetadataRecord] = []
    outcomes: list[ElectionOutcome] = []
    for name, index in dict.fromkeys(_named(view, request)):
        is_over = limit is not None and len(outcomes) >= limit
        if is_over and not everything:
            outcomes.append(ElectionOutcome(name, index, ErrorCode.REQUEST_LIMIT_REACHED))
            continue
        outcome, record = _elect(elections, name, index, election)
        if everything and outcome.error is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        if is_over:
            outcomes.append(ElectionOutcome(name, index, ErrorCode.REQUEST_LIMIT_REACHED))
            continue
        outcomes.append(outcome)
        if record is not None:
            records.append(record)
    check_record_count(len(records))
    return Decision(tuple(records), tuple(outcomes))


def check_desired_leaders(named: ElectLeadersRequest.TopicPartitions) -> None:
    """Check that there are no desired leaders, or as many as partitions, for every election type.

    A client that counts wrong may mean another partition.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    desired = named.desired_leaders
    if desired and len(desired) != len(named.partitions):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"topic {named.topic}: {len(desired)} desired leaders for "
            f"{len(named.partitions)} partitions",
        )


def _named(view: ControllerView, request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for name, topic in sorted(view.image.topics.by_name.items()):
            for index in sorted(topic.partitions):
                yield name, index
        return
    for named in request.topic_partitions:
        for index in named.partitions:
            yield named.topic, index


def _elect(
    elections: ElectionContext, name: str, index: int, election: ElectionType
) -> tuple[ElectionOutcome, MetadataRecord | None]:
    topic = elections.view.image.topics.by_name.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        what = "topic" if topic is None else "partition"
        message = f"there is no such {what}"
        return ElectionOutcome(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message), None
    ordered = elections.candidates(topic, index, partition)
    preferred = election is ElectionType.PREFERRED
    leads = partition.leader == ordered[0] if preferred else partition.leader != NO_LEADER
    if leads:
        message = "the preferred leader leads" if preferred else "has one"
        return ElectionOutcome(name, index, ErrorCode.ELECTION_NOT_NEEDED, message), None
    eligibility_of = elections.eligibility_in(topic, index, partition)

    def change(target: Target) -> PartitionChange | None:
        return elections.change_partition(
            topic,
            index,
            partition,
            Cause.PREFERRED_REQUEST if preferred else Cause.OPERATOR_REQUEST,
            target=target,
            election=Wish.PREFERRED if preferred else Wish.UNCLEAN,
        )

    changed = change(AS_IT_IS)
    if _elected(changed) == NO_LEADER and not preferred:
        for replica in _only_without_directory(ordered, eligibility_of)[:1]:
            changed = change(_begun_anew(elections.view, partition, replica))
    leader = _elected(changed)
    record = None if changed is None else changed.record
    if leader == NO_LEADER or (preferred and leader != ordered[0]):
        return _refusal(topic.name, index, ordered, election, eligibility_of), record
    return ElectionOutcome(topic.name, index, ErrorCode.NONE), record


def _elected(change: PartitionChange | None) -> int:
    return NO_LEADER if change is None else change.elected.leader


def _only_without_directory(
    ordered: tuple[int, ...], eligibility_of: ReplicaEligibility
) -> tuple[int, ...]:
    """Return the live replicas that are ineligible only because their directory is gone."""
    return tuple(r for r in ordered if eligibility_of(r) == DIRECTORY_OFFLINE)


def _begun_anew(view: ControllerView, partition: PartitionImage, replica: int) -> Target:
    """Return a target with the replica in its broker's default directory, with the log found
    there."""
    default = default_directory(view.image.cluster.brokers[replica])
    return Target(
        directories=tuple(
            default if known == replica else directory
            for known, directory in zip(partition.replicas, partition.directories, strict=True)
        ),
        begun_anew=frozenset({replica}),
    )


def _refusal(
    name: str,
    index: int,
    ordered: tuple[int, ...],
    election: ElectionType,
    eligibility_of: ReplicaEligibility,
) -> ElectionOutcome:
    if election is ElectionType.UNCLEAN:
        message = explain(ordered, eligibility_of)
        return ElectionOutcome(name, index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    message = explain(ordered[:1], eligibility_of) or f"broker {ordered[0]} is not in the ISR"
    return ElectionOutcome(name, index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
