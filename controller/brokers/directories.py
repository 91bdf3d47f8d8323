"""AssignReplicasToDirs: the log directories of a broker's replicas, as it reports them (KIP-858).

A broker with one directory has its replicas there, so the controller writes that down when it
places them. A broker with several (Apache Kafka's) chooses one for each replica and says which.
That matters when one of them fails: its replicas leave their ISRs and leaderships, the broker's
others stay (`controller.brokers.registration`).

A replica whose directory on record is offline, and that turns up in another one, is a new replica:
whatever it held is on the disk that is gone. So it leaves the ISR, and comes back when it has
caught up (P11). Where nobody would be left who holds what was committed, the assignment is refused
until there is a leader again: taken down, it would make an empty replica the only one that counts
as complete, and the next election clean. A broker that takes a move back within one broker epoch
has the replica where it was: that one is not new (`controller.directory_moves`).
"""

from __future__ import annotations

from typing import NamedTuple

from controller.brokers.registration import check_broker_epoch
from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.context import NO_BROKER_CHANGE, BrokerChange, ElectionContext
from controller.elections.eligibility import is_online
from controller.elections.partition_change import Target
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.replay import merge_partition_change
from metalog.image.values import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord
from runtime.marks import mark


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
                is_new = current is not None and _is_new_replica(
                    view, key, current, broker, directory.id
                )
                error = _error(topic, current, broker, is_new)
                if error is ErrorCode.NONE and topic is not None and current is not None:
                    where = (broker, directory.id)
                    record = _assign(view, topic, index, current, where, is_new)
                    if record is not None:
                        records.append(record)
                        changed[key] = merge_partition_change(current, record)
                outcomes.append(Assigned(directory.id, asked.topic_id, index, error))
    return Decision(tuple(records), tuple(outcomes))


def _error(
    topic: TopicImage | None, current: PartitionImage | None, broker: BrokerImage, is_new: bool
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.id not in current.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if is_new and _is_relied_on(current, broker.id):
        mark("controller.wiped-disk")
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_new_replica(
    view: ControllerView,
    key: tuple[bytes, int],
    current: PartitionImage,
    broker: BrokerImage,
    directory: bytes,
) -> bool:
    """Return whether the directory on record is offline and the replica is in another one now, in
    which this process of the broker did not have it before.

    The log of a leader is the partition's, in whatever directory it is.
    """
    known = None if current.leader == broker.id else current.directory_of(broker.id)
    if known is None or is_online(broker, known) or not is_online(broker, directory):
        return False
    return not view.directory_moves.was_in(*key, broker, directory)


def _is_relied_on(current: PartitionImage, broker_id: int) -> bool:
    """Whether the partition waits for this broker, or for what it had, to lead it again."""
    clean = (*current.isr, *current.elr, *current.last_known_elr)
    return current.leader == NO_LEADER and broker_id in clean


def _assign(
    view: ControllerView,
    topic: TopicImage,
    index: int,
    current: PartitionImage,
    where: tuple[BrokerImage, bytes],
    is_new: bool,
) -> PartitionChangeRecord | None:
    """The record, None if it says so already, or says of one offline directory after another.
    `where` is the broker and the directory in which it has the replica."""
    broker, directory = where
    before = current.directory_of(broker.id)
    assert before is not None
    here = frozenset({broker.id})
    change, isr = NO_BROKER_CHANGE, None
    if is_new:
        change = BrokerChange(leaving=here, unclean=here)
    elif not is_online(broker, directory):
        if not is_online(broker, before):
            # The first one stays on record: with it the replica would be whole again.
            return None
        change = BrokerChange(leaving=here)
    elif before == directory:
        return None
    if change.leaving:
        isr = tuple(r for r in current.isr if r != broker.id)
    target = Target(
        isr=isr,
        directories=tuple(
            directory if replica == broker.id else known
            for replica, known in zip(current.replicas, current.directories, strict=True)
        ),
    )
    changed = ElectionContext(view, change).change_partition(
        topic, index, current, Cause.DIRECTORY_FAILED, target=target
    )
    return None if changed is None else changed.record
