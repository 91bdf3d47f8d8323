"""AssignReplicasToDirs: log directories of replicas, as their broker reports them (KIP-858).

For a broker with one directory, the controller records that directory when it places a replica. A
broker with several (Apache Kafka's) chooses one for each replica and reports it. The record matters
when a directory fails: its replicas leave their ISRs and leaderships, the broker's others stay
(`controller.brokers.registration`).

If a replica's recorded directory is offline and the broker reports it in another one, it is a new
replica: its log is on the lost disk. So it leaves the ISR, and returns when it has caught up (P11).
If no replica with all committed records would remain, the assignment is refused until there is a
leader again. Otherwise an empty replica would be the only one that counts as complete, and the next
election would count as clean. A broker that moves a replica back within one broker epoch still has
its log there, so that replica is not new (`controller.directory_moves`).
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
    """The result for one replica."""

    directory: bytes
    topic_id: bytes
    partition_id: int
    error: ErrorCode


def decide_assign_directories(
    view: ControllerView, request: AssignReplicasToDirsRequest
) -> Decision[tuple[Assigned, ...]]:
    """Record the directories of the broker's replicas; each is judged alone, in the request's
    order.

    Raises:
        ApiError: STALE_BROKER_EPOCH; UNSUPPORTED_VERSION if the metadata.version has no
            directories.
    """
    if view.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "this metadata.version does not support log directories"
        )
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    outcomes = []
    # If a request names a partition twice, the second entry sees the result of the first.
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
    """Return whether the replica's recorded directory is offline and the new one is online.

    False if this process of the broker had the replica there before. A leader's log is the
    partition's log, in whatever directory it is.
    """
    known = None if current.leader == broker.id else current.directory_of(broker.id)
    if known is None or is_online(broker, known) or not is_online(broker, directory):
        return False
    return not view.directory_moves.was_in(*key, broker, directory)


def _is_relied_on(current: PartitionImage, broker_id: int) -> bool:
    """Return whether the leaderless partition waits for this broker, or for its records."""
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
    """Return the record, None if the directory is recorded already.

    None, too, if an offline directory is reported after another one.

    Args:
        where: the broker, and the directory in which it has the replica.
    """
    broker, directory = where
    before = current.directory_of(broker.id)
    assert before is not None
    here = frozenset({broker.id})
    change, isr = NO_BROKER_CHANGE, None
    if is_new:
        change = BrokerChange(leaving=here, unclean=here)
    elif not is_online(broker, directory):
        if not is_online(broker, before):
            # The first one stays on record: with that disk the replica would be complete again.
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
