"""AssignReplicasToDirs: a broker says in which of its log directories a replica is (KIP-858).

A broker with one directory has its replicas there, so the controller writes that down when it
places them. A broker with several (Apache Kafka's) chooses one for each replica and says which.
That matters when one of them fails: its replicas leave their ISRs and leaderships, the broker's
others stay (`controller.cluster`).
"""

from __future__ import annotations

from typing import NamedTuple

from controller.cluster import check_broker_epoch
from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.partition_change import Target, change_partition
from controller.elections.triggers import (
    NO_SHIFT,
    NONE,
    BrokerShift,
    election_kind,
    eligibility_in,
    safety_of,
)
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.replay import merge_partition_change
from metalog.image.values import BrokerImage, PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.ids import DIRECTORY_LOST, RESERVED_UUIDS
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord


class Assigned(NamedTuple):
    """What became of one replica."""

    directory: bytes
    topic_id: bytes
    partition_id: int
    error: ErrorCode


def decide_assign_directories(
    view: ControllerView, request: AssignReplicasToDirsRequest
) -> Decision[tuple[Assigned, ...]]:
    """Write down where the broker's replicas are; each is judged alone, in the request's order.

    Raises STALE_BROKER_EPOCH, and UNSUPPORTED_VERSION where records cannot say it yet.
    """
    if view.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "this metadata.version knows no log directories"
        )
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    outcomes = []
    # Who names a partition twice gets the second answer for what the first one made of it.
    changed: dict[tuple[bytes, int], PartitionImage] = {}
    for directory in request.directories:
        for asked in directory.topics:
            topic = view.image.topics.by_id.get(asked.topic_id)
            for index in (p.partition_index for p in asked.partitions):
                key = (asked.topic_id, index)
                current = changed.get(key, topic.partitions.get(index) if topic else None)
                error = _error(topic, current, broker)
                if error is ErrorCode.NONE and topic is not None and current is not None:
                    record = _assign(view, topic, index, current, broker, directory.id)
                    if record is not None:
                        records.append(record)
                        changed[key] = merge_partition_change(current, record)
                outcomes.append(Assigned(directory.id, asked.topic_id, index, error))
    return Decision(tuple(records), tuple(outcomes))


def _error(
    topic: TopicImage | None, current: PartitionImage | None, broker: BrokerImage
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.id not in current.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _assign(
    view: ControllerView,
    topic: TopicImage,
    index: int,
    current: PartitionImage,
    broker: BrokerImage,
    directory: bytes,
) -> PartitionChangeRecord | None:
    """The record, None if it says so already."""
    if current.directory_of(broker.id) == directory:
        return None
    shift, isr = NO_SHIFT, None
    if not is_online(broker, directory):
        shift = BrokerShift(leaving=frozenset({broker.id}))
        isr = tuple(r for r in current.isr if r != broker.id)
    change = change_partition(
        current,
        topic_id=topic.id,
        partition_id=index,
        target=Target(
            isr=isr,
            directories=tuple(
                directory if replica == broker.id else known
                for replica, known in zip(current.replicas, current.directories, strict=True)
            ),
        ),
        election=election_kind(view, topic.name),
        cause=Cause.DIRECTORY_FAILED,
        safety=safety_of(
            view, topic, eligibility_of=eligibility_in(view, shift), unclean_shutdown=NONE
        ),
        touch=False,
    )
    return None if change is None else change.record


def is_online(broker: BrokerImage, directory: bytes) -> bool:
    """Whether the broker can use that directory, as far as its registration says."""
    if directory in RESERVED_UUIDS:
        return directory != DIRECTORY_LOST
    return not broker.directories or directory in broker.directories
