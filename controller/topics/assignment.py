"""Replica assignments of new partitions: validated if the request gives them, otherwise placed.

Both result in PartitionRecords. The ISR of a new partition is every replica whose broker is
unfenced and not shutting down; the first of them is the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.eligibility import default_directory
from controller.topics.placement import UsableBroker, place_replicas
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import BrokerImage, LeaderRecoveryState
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.partition_record import PartitionRecord

if TYPE_CHECKING:
    from random import Random


def check_manual_assignment(
    view: ControllerView, broker_ids: Sequence[int], *, replication_factor: int | None
) -> tuple[int, ...]:
    """Check a replica list from a request.

    Args:
        replication_factor: of the topic's other partitions, None without any.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    problem = _list_problem(view, broker_ids) or _set_problem(view, broker_ids, replication_factor)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return tuple(broker_ids)


def check_replica_list(view: ControllerView, broker_ids: Sequence[int]) -> None:
    """Check the target of a reassignment; its brokers may be down for now.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    problem = _list_problem(view, broker_ids)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _list_problem(view: ControllerView, broker_ids: Sequence[int]) -> str | None:
    brokers = view.image.cluster.brokers
    if not broker_ids:
        return "the assignment contains an empty replica list"
    if len(set(broker_ids)) != len(broker_ids):
        return f"the assignment contains a broker twice: {list(broker_ids)}"
    unknown = [b for b in broker_ids if b not in brokers]
    if unknown:
        return f"the assignment contains broker {unknown[0]}, which is not registered"
    cordoned = [b for b in broker_ids if _is_cordoned(brokers[b])]
    if cordoned:
        return (
            f"the assignment contains broker {cordoned[0]}, whose log directories are all cordoned"
        )
    return None


def _set_problem(
    view: ControllerView, broker_ids: Sequence[int], replication_factor: int | None
) -> str | None:
    if replication_factor is not None and len(broker_ids) != replication_factor:
        return (
            "all partitions of the assignment need the same number of replicas, not "
            f"{len(broker_ids)} and {replication_factor}"
        )
    if not any(is_active(view.image.cluster.brokers[b]) for b in broker_ids):
        return f"all assigned brokers {list(broker_ids)} are fenced or shutting down"
    return None


def placed_assignments(
    view: ControllerView, *, partition_count: int, replication_factor: int, rng: Random
) -> Iterator[tuple[int, ...]]:
    """Return replica lists by the placement rules. Raises ApiError: INVALID_REPLICATION_FACTOR."""
    usable = [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in view.image.cluster.brokers.values()
        if not broker.in_controlled_shutdown and not _is_cordoned(broker)
    ]
    return place_replicas(
        usable,
        partition_count=partition_count,
        replication_factor=replication_factor,
        rng=rng,
    )


def is_active(broker: BrokerImage) -> bool:
    """Return whether the broker is unfenced and not shutting down."""
    return not broker.fenced and not broker.in_controlled_shutdown


def _is_cordoned(broker: BrokerImage) -> bool:
    """Return whether every log directory is cordoned, so that it gets no new replicas
    (KIP-1066)."""
    return bool(broker.directories) and set(broker.directories) <= set(broker.cordoned_directories)


def partition_records(
    view: ControllerView,
    topic_id: bytes,
    assignments: Iterable[tuple[int, ...]],
    cause: Cause,
    first_index: int = 0,
) -> Iterator[PartitionRecord]:
    """Yield the first records of partitions, numbered from `first_index` on.

    At least one replica of each must be active.
    """
    brokers = view.image.cluster.brokers
    with_directories = view.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    recovered, why = int(LeaderRecoveryState.RECOVERED), cause.value
    # Thousands of partitions share a few lists of replicas.
    known: dict[tuple[int, ...], tuple[list[int], list[bytes] | None]] = {}
    for index, replicas in enumerate(assignments, first_index):
        found = known.get(replicas)
        if found is None:
            isr = [r for r in replicas if is_active(brokers[r])]
            directories = (
                [default_directory(brokers[r]) for r in replicas] if with_directories else None
            )
            found = known[replicas] = (isr, directories)
        isr, directories = found
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr.copy(),
            leader=isr[0],
            leader_recovery_state=recovered,
            leader_epoch=0,
            partition_epoch=0,
            election_cause=why,
        )
        if directories is not None:
            record.directories = directories.copy()
        yield record
