"""ElectLeaders: elections that an operator asks for (KIP-460).

A preferred election moves leadership to the first replica of the election order where that is
clean; an unclean one gives a partition without leader to whoever is alive. The answer says for each
partition what happened, and a refusal names the brokers and the reason of each.

An unclean election that finds nobody else takes a live replica whose log directory is gone: it
begins with whatever its broker has now, mostly nothing. Only an operator can ask for that. It is
how a partition goes on whose only replica was on a disk that will not come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from controller.decision import ControllerView, Decision, check_record_count
from controller.elections.cause import Cause
from controller.elections.election import Wish
from controller.elections.eligibility import (
    DIRECTORY_OFFLINE,
    EligibilityOf,
    PartitionReplicas,
    ReplicaEligibility,
    default_directory,
    explain,
)
from controller.elections.partition_change import (
    PartitionChange,
    Target,
    change_partition,
    is_preferred,
    replicas_of,
)
from controller.elections.triggers import (
    NO_BROKER_CHANGE,
    NONE,
    election_order,
    eligibility_in,
    safety_of,
)
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.schema import MetadataRecord


class ElectionType(IntEnum):
    """The request's election type."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionOutcome(NamedTuple):
    """One partition; `error` is NONE when a leader was elected."""

    topic: str
    partition_id: int
    error: ErrorCode
    message: str | None = None


def decide_elect_leaders(
    view: ControllerView, request: ElectLeadersRequest
) -> Decision[tuple[ElectionOutcome, ...]]:
    """Elect leaders in the named partitions, or in all of them when none are named.

    For all partitions, those that need no election are left out of the reply.
    Raises INVALID_REQUEST for a type that does not exist, POLICY_VIOLATION.
    """
    if request.election_type not in tuple(ElectionType):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{request.election_type} is not a type of election"
        )
    election = ElectionType(request.election_type)
    eligibility_of = eligibility_in(view, NO_BROKER_CHANGE)
    everything = request.topic_partitions is None
    records: list[MetadataRecord] = []
    outcomes = []
    for name, index in dict.fromkeys(_named(view, request)):
        outcome, record = _elect(view, name, index, election, eligibility_of)
        if record is not None:
            records.append(record)
        if not (everything and outcome.error is ErrorCode.ELECTION_NOT_NEEDED):
            outcomes.append(outcome)
    check_record_count(len(records))
    return Decision(tuple(records), tuple(outcomes))


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
    view: ControllerView,
    name: str,
    index: int,
    election: ElectionType,
    eligibility_of: EligibilityOf,
) -> tuple[ElectionOutcome, MetadataRecord | None]:
    topic = view.image.topics.by_name.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        what = "topic" if topic is None else "partition"
        message = f"there is no such {what}"
        return ElectionOutcome(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message), None
    place = replicas_of(topic.id, index, partition)
    if _not_needed(view, place, partition.leader, election):
        message = "the preferred leader leads" if election is ElectionType.PREFERRED else "has one"
        return ElectionOutcome(name, index, ErrorCode.ELECTION_NOT_NEEDED, message), None
    return _elect_in(view, topic, index, partition, election, eligibility_of)


def _not_needed(
    view: ControllerView, place: PartitionReplicas, leader: int, election: ElectionType
) -> bool:
    if election is ElectionType.UNCLEAN:
        return leader != NO_LEADER
    return _leads(view, place, leader)


def _elect_in(
    view: ControllerView,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    election: ElectionType,
    eligibility_of: EligibilityOf,
) -> tuple[ElectionOutcome, MetadataRecord | None]:
    preferred = election is ElectionType.PREFERRED
    place = replicas_of(topic.id, index, partition)
    ordered = election_order(view)(place, partition.replicas, view.now_ms)

    def change(target: Target, unclean: frozenset[int]) -> PartitionChange | None:
        return change_partition(
            partition,
            topic_id=topic.id,
            partition_id=index,
            target=target,
            election=Wish.PREFERRED if preferred else Wish.UNCLEAN,
            cause=Cause.PREFERRED_REQUEST if preferred else Cause.OPERATOR_REQUEST,
            safety=safety_of(view, topic, eligibility_of=eligibility_of, unclean_shutdown=unclean),
            touch=False,
        )

    changed = change(Target(), NONE)
    here = partial(eligibility_of, place)
    if _elected(changed) == NO_LEADER and not preferred:
        for replica in _only_without_directory(ordered, here)[:1]:
            # Its log is another one than that which was in sync, if it was.
            target = Target(directories=_in_default_directory(view, place, replica))
            changed = change(target, frozenset({replica}))
    leader = _elected(changed)
    record = None if changed is None else changed.record
    if leader == NO_LEADER or (preferred and not _leads(view, place, leader)):
        return _refusal(topic.name, index, ordered, election, here), record
    return ElectionOutcome(topic.name, index, ErrorCode.NONE), record


def _elected(change: PartitionChange | None) -> int:
    return NO_LEADER if change is None else change.elected.leader


def _only_without_directory(
    ordered: tuple[int, ...], eligibility_of: ReplicaEligibility
) -> tuple[int, ...]:
    """Live replicas against which nothing is to be said but that their directory is gone."""
    return tuple(r for r in ordered if eligibility_of(r) == DIRECTORY_OFFLINE)


def _in_default_directory(
    view: ControllerView, place: PartitionReplicas, moved: int
) -> tuple[bytes, ...]:
    default = default_directory(view.image.cluster.brokers[moved])
    return tuple(
        default if replica == moved else directory
        for replica, directory in zip(place.replicas, place.directories, strict=True)
    )


def _leads(view: ControllerView, place: PartitionReplicas, leader: int) -> bool:
    return is_preferred(place, leader, order=election_order(view), now_ms=view.now_ms)


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
