"""Deletion of topics, and additional partitions of topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from controller.decision import (
    ControllerView,
    Decision,
    check_record_count,
)
from controller.elections.cause import Cause
from controller.quotas.mutations import Spending
from controller.topics.assignment import (
    check_manual_assignment,
    partition_records,
    placed_assignments,
)
from metalog.image.values import TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID, uuid_to_text
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.schema import MetadataRecord

if TYPE_CHECKING:
    from random import Random

PartitionsTopic: TypeAlias = CreatePartitionsRequest.CreatePartitionsTopic


class TopicKey(NamedTuple):
    """The key of a topic in a request: its name, or its id with a name of None."""

    name: str | None
    topic_id: bytes = ZERO_UUID


class DeleteOutcome(NamedTuple):
    """The result for one topic; `name` and `topic_id` are filled in if known."""

    name: str | None
    topic_id: bytes
    error: ApiError | None


class PartitionsOutcome(NamedTuple):
    name: str
    error: ApiError | None


# --- deletion ---------------------------------------------------------------------------------


def decide_delete_topics(
    view: ControllerView, keys: Sequence[TopicKey], spending: Spending | None = None
) -> Decision[tuple[DeleteOutcome, ...]]:
    """Delete topics by name or by id; each succeeds or fails independently. Partitions are charged.

    A topic that is named both ways is not deleted, and one outcome reports that for both.

    Raises:
        ApiError: TOPIC_DELETION_DISABLED, POLICY_VIOLATION.
    """
    if not view.settings.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    check_record_count(len(keys))
    counts = Counter(keys)
    records: list[MetadataRecord] = []
    outcomes: dict[TopicKey, DeleteOutcome] = {}
    for key in keys:
        if key in outcomes:
            continue
        try:
            topic = _find_doomed(view, key, counts[key])
            if _other_key(topic, key) in counts:
                if key.name is not None:
                    outcomes[key] = DeleteOutcome(topic.name, topic.id, _named_twice())
                continue
            if spending is not None:
                spending.charge(len(topic.partitions))
        except ApiError as error:
            outcomes[key] = DeleteOutcome(key.name, key.topic_id, error.as_value())
            continue
        records.append(RemoveTopicRecord(topic_id=topic.id))
        outcomes[key] = DeleteOutcome(topic.name, topic.id, None)
    return Decision(tuple(records), tuple(outcomes.values()))


def _find_doomed(view: ControllerView, key: TopicKey, occurrences: int) -> TopicImage:
    if key.name is None and key.topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give a topic name or a topic id")
    if key.name is not None and key.topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give a topic name or a topic id, not both")
    if occurrences > 1:
        raise _named_twice()
    topics = view.image.topics
    if key.name is None:
        topic = topics.by_id.get(key.topic_id)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"unknown topic id {uuid_to_text(key.topic_id)}"
            )
    else:
        topic = topics.by_name.get(key.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic")
    return topic


def _other_key(topic: TopicImage, key: TopicKey) -> TopicKey:
    """Return the other key of the topic that `key` names."""
    return TopicKey(topic.name) if key.name is None else TopicKey(None, topic.id)


def _named_twice() -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, "duplicate topic in the request")


# --- more partitions --------------------------------------------------------------------------


def decide_create_partitions(
    view: ControllerView, request: CreatePartitionsRequest, spending: Spending | None = None
) -> Decision[tuple[PartitionsOutcome, ...]]:
    """Add partitions to topics; each succeeds or fails independently. Partitions are charged.

    Raises:
        ApiError: POLICY_VIOLATION, more than 10,000 partitions in total. As in Kafka 4.4, this is
            checked before the assignments.
    """
    counts = Counter(topic.name for topic in request.topics)
    check_record_count(
        sum(_additional(view, topic) for topic in request.topics if counts[topic.name] == 1)
    )
    rng = view.fresh_rng()
    records: list[MetadataRecord] = []
    outcomes: dict[str, PartitionsOutcome] = {}
    for topic in request.topics:
        if topic.name in outcomes:
            continue
        try:
            if counts[topic.name] > 1:
                raise _named_twice()
            added = _add_partitions(view, topic, rng)
            if spending is not None:
                spending.charge(len(added))
            records += added
        except ApiError as error:
            outcomes[topic.name] = PartitionsOutcome(topic.name, error.as_value())
            continue
        outcomes[topic.name] = PartitionsOutcome(topic.name, None)
    reply = tuple(outcomes.values())
    return Decision(() if request.validate_only else tuple(records), reply)


def _additional(view: ControllerView, wanted: PartitionsTopic) -> int:
    """Return the number of partitions that the request adds to this topic."""
    topic = view.image.topics.by_name.get(wanted.name)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)


def _add_partitions(
    view: ControllerView, wanted: PartitionsTopic, rng: Random
) -> list[PartitionRecord]:
    topic = view.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic")
    current = len(topic.partitions)
    additional = wanted.count - current
    if additional <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic already has {current} partitions; the new count must be "
            f"higher, not {wanted.count}",
        )
    first = topic.partitions[min(topic.partitions)]
    # A partition in reassignment counts with its target replicas.
    replication_factor = sum(replica not in first.removing for replica in first.replicas)
    if wanted.assignments is not None:
        replica_lists = _manual(view, wanted.assignments, additional, replication_factor)
    else:
        replica_lists = list(
            placed_assignments(
                view,
                partition_count=additional,
                replication_factor=replication_factor,
                rng=rng,
            )
        )
    return list(partition_records(view, topic.id, replica_lists, Cause.PARTITIONS_CREATED, current))


def _manual(
    view: ControllerView,
    assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment],
    additional: int,
    replication_factor: int,
) -> list[tuple[int, ...]]:
    if len(assignments) != additional:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{additional} partitions are added, but {len(assignments)} assigned",
        )
    return [
        check_manual_assignment(view, a.broker_ids, replication_factor=replication_factor)
        for a in assignments
    ]
