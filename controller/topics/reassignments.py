"""Partition reassignments: start, replace, cancel, list (KIP-455).

A reassignment is state of the partition itself. Starting one adds the new replicas (replicas =
target + those to remove) and records the `adding` and the `removing` replicas. The leader then
proposes ISRs as usual. The first ISR that contains every target replica ends the reassignment
(`elections.partition_change`, which also keeps it open below min ISR). Without new replicas it ends
at once. This module never adds a replica to an ISR (P23).

- The original replicas of a partition are those that are not being added. Cancelling restores them,
  so a replica that an earlier reassignment was adding never stays (KAFKA-13972: its broker learns
  from the new leader epoch that it has been removed).
- Replacing starts from the original replicas too. Replicas that the first reassignment was adding
  and the second does not contain are removed at once. If the ISR needs them to stay at min ISR,
  they are removed when the second one ends.
- Cancelling removes the added replicas from the ISR. It is refused if fewer than min ISR would
  remain (KIP-966): the records that only few others have are safer with the added replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from controller.decision import ControllerView, Decision, check_record_count
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext
from controller.elections.election import Election, Wish
from controller.elections.eligibility import default_directory
from controller.elections.elr import effective_min_isr
from controller.elections.partition_change import Target
from controller.topics.assignment import check_replica_list
from metalog.image.replay import merge_partition_change
from metalog.image.values import PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import MetadataRecord
from runtime.marks import mark

Wanted: TypeAlias = AlterPartitionReassignmentsRequest.ReassignablePartition


class Reassignment(NamedTuple):
    topic: str
    partition_id: int
    partition: PartitionImage


class ReassignOutcome(NamedTuple):
    """One partition of the request, with the error of a refusal."""

    topic: str
    partition_id: int
    error: ApiError | None


def is_reassigning(partition: PartitionImage) -> bool:
    """Return whether replicas are being added to or removed from the partition."""
    return bool(partition.adding or partition.removing)


def list_reassignments(
    view: ControllerView, named: Sequence[tuple[str, Sequence[int]]] | None
) -> Iterator[Reassignment]:
    """Yield ongoing reassignments of the named partitions, or of all."""
    by_name = view.image.topics.by_name
    if named is None:
        named = [(name, sorted(by_name[name].partitions)) for name in sorted(by_name)]
    for name, indexes in named:
        topic = by_name.get(name)
        if topic is None:
            continue
        for index in indexes:
            partition = topic.partitions.get(index)
            if partition is not None and is_reassigning(partition):
                yield Reassignment(name, index, partition)


def decide_reassign(
    view: ControllerView, request: AlterPartitionReassignmentsRequest
) -> Decision[tuple[ReassignOutcome, ...]]:
    """Start, replace or (replicas None) cancel; each partition succeeds or fails independently.

    Raises:
        ApiError: POLICY_VIOLATION, the request as a whole would write too much.
    """
    elections = ElectionContext(view)
    # If a request names a partition twice, the second entry sees the result of the first.
    changed: dict[tuple[str, int], PartitionImage] = {}
    records: list[MetadataRecord] = []
    outcomes = []
    for named in request.topics:
        topic = view.image.topics.by_name.get(named.name)
        for wanted in named.partitions:
            key = (named.name, wanted.partition_index)
            try:
                current = changed.get(key) or _existing(topic, wanted.partition_index)
                assert topic is not None
                if wanted.replicas is None:
                    record = _cancel(elections, topic, wanted, current)
                else:
                    allowed = request.allow_replication_factor_change
                    _check_target(view, current, wanted.replicas, allowed)
                    record = _change(elections, topic, wanted, current)
            except ApiError as error:
                outcomes.append(ReassignOutcome(*key, error.as_value()))
                continue
            if record is not None:
                records.append(record)
                changed[key] = merge_partition_change(current, record)
            outcomes.append(ReassignOutcome(*key, None))
    check_record_count(len(records))
    return Decision(tuple(records), tuple(outcomes))


def _existing(topic: TopicImage | None, index: int) -> PartitionImage:
    partition = None if topic is None else topic.partitions.get(index)
    if partition is None:
        what = "topic" if topic is None else "partition"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown {what}")
    return partition


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas from before any ongoing reassignment."""
    return tuple(r for r in partition.replicas if r not in partition.adding)


def _check_target(
    view: ControllerView,
    partition: PartitionImage,
    replicas: Sequence[int],
    may_change_replication_factor: bool,
) -> None:
    check_replica_list(view, replicas)
    before = len(original_replicas(partition))
    if not may_change_replication_factor and len(replicas) != before:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "the request does not allow a change of the replication factor from "
            f"{before} to {len(replicas)}",
        )


def _change(
    elections: ElectionContext,
    topic: TopicImage,
    wanted: Wanted,
    current: PartitionImage,
) -> PartitionChangeRecord | None:
    goal = tuple(wanted.replicas or ())
    original = original_replicas(current)
    unwanted = tuple(r for r in current.adding if r not in goal)
    isr = tuple(r for r in current.isr if r not in unwanted)
    needed: tuple[int, ...] = ()
    if len(isr) < effective_min_isr(elections.rules(topic).safety.min_isr, len(goal)):
        needed = tuple(r for r in unwanted if r in current.isr)
        isr = current.isr
    removing = (*sorted(r for r in original if r not in goal), *needed)
    replicas = (*goal, *removing)
    target = Target(
        isr=isr if isr != current.isr else None,
        replicas=replicas,
        directories=_directories(elections.view, current, replicas),
        adding=tuple(sorted(r for r in goal if r not in original)),
        removing=removing,
    )
    # As in Kafka, only a cancellation may elect uncleanly: the one broker in sync may be shutting
    # down, and a replica that was added by this request has no records.
    return _record(elections, topic, wanted, current, target, Wish.ONLINE)


def _cancel(
    elections: ElectionContext,
    topic: TopicImage,
    wanted: Wanted,
    current: PartitionImage,
) -> PartitionChangeRecord | None:
    if not is_reassigning(current):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    original = original_replicas(current)
    if not original:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "every replica is being added: none would remain"
        )
    isr = tuple(r for r in current.isr if r not in current.adding)
    needed = effective_min_isr(elections.rules(topic).safety.min_isr, len(original))
    if len(isr) < needed and isr != current.isr:
        missing = [r for r in original if r not in isr]
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"cancelling to {list(original)} would leave {list(isr)} in sync, fewer "
            f"than min.insync.replicas={needed}; not in sync: {missing}",
        )
    mark("controller.reassignment-cancelled")
    target = Target(
        isr=isr,
        replicas=original,
        directories=_directories(elections.view, current, original),
        adding=(),
        removing=(),
    )
    return _record(elections, topic, wanted, current, target)


def _directories(
    view: ControllerView, current: PartitionImage, replicas: tuple[int, ...]
) -> tuple[bytes, ...]:
    """Return the directories: replicas that stay keep theirs, new ones get their broker's
    default."""
    known = dict(zip(current.replicas, current.directories, strict=True))
    brokers = view.image.cluster.brokers
    return tuple(known[r] if r in known else default_directory(brokers[r]) for r in replicas)


def _record(
    elections: ElectionContext,
    topic: TopicImage,
    wanted: Wanted,
    current: PartitionImage,
    target: Target,
    election: Election | None = None,
) -> PartitionChangeRecord | None:
    change = elections.change_partition(
        topic,
        wanted.partition_index,
        current,
        Cause.REASSIGNMENT,
        target=target,
        election=election,
    )
    return None if change is None else change.record
