"""ElectLeaders: elections that an operator asks for (KIP-460).

A preferred election moves leadership to the first replica of the election order where that is
clean; an unclean one gives a partition without leader to whoever is alive. The answer says for each
partition what happened, and a refusal names the brokers and the reason of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from controller.decision import ControllerView, Decision, check_record_count
from controller.elections.cause import Cause
from controller.elections.election import ElectionKind
from controller.elections.eligibility import EligibilityOf, explain
from controller.elections.partition_change import Target, change_partition, is_preferred
from controller.elections.triggers import (
    NO_SHIFT,
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
    eligibility_of = eligibility_in(view, NO_SHIFT)
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
    if _not_needed(view, partition, election):
        message = "the preferred leader leads" if election is ElectionType.PREFERRED else "has one"
        return ElectionOutcome(name, index, ErrorCode.ELECTION_NOT_NEEDED, message), None
    return _elect_in(view, topic, index, partition, election, eligibility_of)


def _not_needed(view: ControllerView, partition: PartitionImage, election: ElectionType) -> bool:
    if election is ElectionType.UNCLEAN:
        return partition.leader != NO_LEADER
    return _leads(view, partition, partition.leader)


def _elect_in(
    view: ControllerView,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    election: ElectionType,
    eligibility_of: EligibilityOf,
) -> tuple[ElectionOutcome, MetadataRecord | None]:
    preferred = election is ElectionType.PREFERRED
    change = change_partition(
        partition,
        topic_id=topic.id,
        partition_id=index,
        target=Target(),
        election=ElectionKind.PREFERRED if preferred else ElectionKind.UNCLEAN,
        cause=Cause.PREFERRED_REQUEST if preferred else Cause.OPERATOR_REQUEST,
        safety=safety_of(view, topic, eligibility_of=eligibility_of, unclean_shutdown=NONE),
        touch=False,
    )
    leader = NO_LEADER if change is None else change.elected.leader
    record = None if change is None else change.record
    if leader == NO_LEADER or (preferred and not _leads(view, partition, leader)):
        ordered = election_order(view)(partition.replicas, view.now_ms)
        return _refusal(topic.name, index, ordered, election, eligibility_of), record
    return ElectionOutcome(topic.name, index, ErrorCode.NONE), record


def _leads(view: ControllerView, partition: PartitionImage, leader: int) -> bool:
    return is_preferred(partition, leader, order=election_order(view), now_ms=view.now_ms)


def _refusal(
    name: str,
    index: int,
    ordered: tuple[int, ...],
    election: ElectionType,
    eligibility_of: EligibilityOf,
) -> ElectionOutcome:
    if election is ElectionType.UNCLEAN:
        message = explain(ordered, eligibility_of)
        return ElectionOutcome(name, index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    message = explain(ordered[:1], eligibility_of) or f"broker {ordered[0]} is not in the ISR"
    return ElectionOutcome(name, index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
