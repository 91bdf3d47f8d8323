"""ElectLeaders by longest log and by designation, for leaderless partitions (KIP-966).

Types 2 to 4 work regardless of configuration, and only in partitions without a leader. A clean
candidate that can lead takes precedence, except over a designation, which is the operator's
explicit choice. Partitions that can be decided at once are; the other elections wait in `recovery`
for answers of brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from controller.configs.topic_settings import RecoveryStrategy
from controller.decision import ControllerView, Decision, check_record_count
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext
from controller.elections.election import Election, ThisBroker, Wish
from controller.elections.eligibility import Ineligible
from controller.elections.on_request import (
    ElectionOutcome,
    ElectionType,
    check_desired_leaders,
)
from controller.elections.recovery_questions import PartitionKey
from metalog.image.values import NO_LEADER, ElectedAs, PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import PARTITIONS_PER_REQUEST_MAX, ElectLeadersRequest
from protocol.schema import MetadataRecord

STRATEGY_OF: Final = {
    ElectionType.LONGEST_LOG_AGGRESSIVE: RecoveryStrategy.AGGRESSIVE,
    ElectionType.LONGEST_LOG_BALANCED: RecoveryStrategy.BALANCED,
}


class RecoveryOutcome(NamedTuple):
    """The result for one partition."""

    error: ErrorCode
    message: str | None = None


class RecoveryRequest:
    """An operator's waiting request, complete when `waiting` is empty.

    deadline_ms: monotonic time after which it elects nothing. outcomes: results of decided
    partitions.
    """

    __slots__ = ("deadline_ms", "outcomes", "strategy", "waiting")

    def __init__(
        self, strategy: RecoveryStrategy, partitions: Iterable[PartitionKey], deadline_ms: float
    ) -> None:
        self.strategy = strategy
        self.deadline_ms = deadline_ms
        self.waiting = dict.fromkeys(partitions)
        self.outcomes: dict[PartitionKey, RecoveryOutcome] = {}


class Waits(NamedTuple):
    """A partition whose election waits for answers."""

    topic: str
    partition_id: int
    topic_id: bytes


class RecoveryPlan(NamedTuple):
    """Decided and waiting partitions, in the order of the request."""

    parts: tuple[ElectionOutcome | Waits, ...]
    strategy: RecoveryStrategy | None

    @property
    def waiting(self) -> list[Waits]:
        return [part for part in self.parts if isinstance(part, Waits)]


class _Named(NamedTuple):
    topic: str
    partition_id: int
    desired: int | None


def decide_recovery_elections(
    view: ControllerView, request: ElectLeadersRequest, version: int
) -> Decision[RecoveryPlan]:
    """Elect at once where possible, and return the partitions that wait.

    For all partitions (null), those that have a leader are left out of the plan.

    Raises:
        ApiError: INVALID_REQUEST for a version below 3. The same if desired leaders differ in
            number
            from the partitions, are missing for a designation, or are two for one partition.
    """
    election = ElectionType(request.election_type)
    if version < 3:
        raise _invalid(f"election type {int(election)} needs version 3, this is {version}")
    elections = ElectionContext(view)
    records: list[MetadataRecord] = []
    parts: list[ElectionOutcome | Waits] = []
    served = 0
    for named in _named(view, request, election):
        served += 1
        if served > PARTITIONS_PER_REQUEST_MAX:
            parts.append(_outcome(named, ErrorCode.REQUEST_LIMIT_REACHED))
            continue
        part, record = _elect(elections, named, election)
        parts.append(part)
        if record is not None:
            records.append(record)
    check_record_count(len(records))
    return Decision(tuple(records), RecoveryPlan(tuple(parts), STRATEGY_OF.get(election)))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _outcome(named: _Named, error: ErrorCode, message: str | None = None) -> ElectionOutcome:
    return ElectionOutcome(named.topic, named.partition_id, error, message)


def _named(
    view: ControllerView, request: ElectLeadersRequest, election: ElectionType
) -> Iterable[_Named]:
    """Return each named partition once. Raises ApiError: INVALID_REQUEST."""
    designation = election is ElectionType.DESIGNATION
    if request.topic_partitions is None:
        if designation:
            raise _invalid("a designation needs a list of partitions with their desired leaders")
        return _leaderless(view)
    found: dict[tuple[str, int], _Named] = {}
    for topic in request.topic_partitions:
        desired = topic.desired_leaders or None
        if desired is None and designation and topic.partitions:
            raise _invalid(f"topic {topic.topic}: a designation needs desired leaders")
        check_desired_leaders(topic)
        for at, index in enumerate(topic.partitions):
            leader = desired[at] if designation and desired is not None else None
            before = found.setdefault((topic.topic, index), _Named(topic.topic, index, leader))
            if before.desired != leader:
                raise _invalid(
                    f"topic {topic.topic} partition {index}: two desired leaders, "
                    f"{before.desired} and {leader}"
                )
    return found.values()


def _leaderless(view: ControllerView) -> Iterator[_Named]:
    for name, topic in sorted(view.image.topics.by_name.items()):
        for index, partition in sorted(topic.partitions.items()):
            if partition.leader == NO_LEADER:
                yield _Named(name, index, None)


def _elect(
    elections: ElectionContext, named: _Named, election: ElectionType
) -> tuple[ElectionOutcome | Waits, MetadataRecord | None]:
    topic = elections.view.image.topics.by_name.get(named.topic)
    partition = None if topic is None else topic.partitions.get(named.partition_id)
    if topic is None or partition is None:
        message = f"there is no such {'topic' if topic is None else 'partition'}"
        return _outcome(named, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message), None
    if election is ElectionType.DESIGNATION:
        return _designate(elections, topic, partition, named)
    if partition.leader != NO_LEADER:
        return _outcome(named, ErrorCode.ELECTION_NOT_NEEDED, "has one"), None
    record = _leader_record(elections, topic, partition, named, Wish.ONLINE)
    if record is not None:
        return _outcome(named, ErrorCode.NONE), record
    return Waits(named.topic, named.partition_id, topic.id), None


def _designate(
    elections: ElectionContext, topic: TopicImage, partition: PartitionImage, named: _Named
) -> tuple[ElectionOutcome, MetadataRecord | None]:
    desired = named.desired
    if desired is None or desired not in partition.replicas:
        message = f"broker {desired} is no replica: those are on {list(partition.replicas)}"
        return _outcome(named, ErrorCode.INVALID_REQUEST, message), None
    if partition.leader != NO_LEADER:
        return _outcome(named, ErrorCode.ELECTION_NOT_NEEDED, "has one"), None
    eligibility = elections.eligibility_in(topic, named.partition_id, partition)(desired)
    if isinstance(eligibility, Ineligible):
        message = f"broker {desired} {eligibility}"
        return _outcome(named, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message), None
    election = ThisBroker(desired, ElectedAs.DESIGNATED)
    record = _leader_record(elections, topic, partition, named, election)
    assert record is not None, "a replica that may lead is elected by name"
    return _outcome(named, ErrorCode.NONE), record


def _leader_record(
    elections: ElectionContext,
    topic: TopicImage,
    partition: PartitionImage,
    named: _Named,
    election: Election,
) -> MetadataRecord | None:
    """Return the record that gives the partition a leader, None if this election finds none."""
    change = elections.change_partition(
        topic, named.partition_id, partition, Cause.OPERATOR_REQUEST, election=election
    )
    if change is None or change.elected.leader == NO_LEADER:
        return None
    return change.record
