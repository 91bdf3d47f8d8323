"""Partition changes that follow from changes of brokers.

Fencing, unfencing, controlled shutdown, removal and an unclean shutdown differ only in the brokers
that leave, join, or lost data. All partitions concerned are changed by `change_partition`.

A broker may be in ten thousand partitions, so they change in parts. Each part is a batch that
leaves a valid state. If a broker is fenced, removed or registered again, its partitions change
first, and the last part is in one batch with the broker's record. So the broker has left them by
then, whatever was appended between the parts. (Without ELR, the last member stays in an ISR.) The
records that unfence a broker or begin its controlled shutdown are in the first part: a fenced
broker may not lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Final, NamedTuple

from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.context import AS_IT_IS, BrokerChange, ElectionContext
from controller.elections.partition_change import Target
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.metadata import PartitionChangeRecord

CHANGES_PER_STEP: Final = 250
"""Partitions that change before other operations have their turn: 3 ms, including the append."""


class ChangePosition(NamedTuple):
    """A partition in the order of changes: topics by name, then by index."""

    topic: str = ""
    partition: int = 0


BEGIN: Final = ChangePosition()


class Part(NamedTuple):
    """Some of the changes, and the position of the next one; None after the last."""

    records: tuple[PartitionChangeRecord, ...] = ()
    since: ChangePosition | None = None


def part_of_changes(
    view: ControllerView,
    change: BrokerChange,
    cause: Cause,
    since: ChangePosition = BEGIN,
    changes_max: int = CHANGES_PER_STEP,
) -> Part:
    """Return at most `changes_max` of the changes that follow from `change`.

    The last part is returned only after a scan of all topics: other records may have undone earlier
    parts.
    """
    for start in dict.fromkeys((since, BEGIN)):
        changes = records_for_change(view, change, cause, since=start, touch_since=since)
        records = tuple(islice(changes, changes_max))
        if len(records) == changes_max:
            last = records[-1]
            name = view.image.topics.by_id[last.topic_id].name
            return Part(records, ChangePosition(name, last.partition_id + 1))
    return Part(records)


def records_for_change(
    view: ControllerView,
    change: BrokerChange,
    cause: Cause,
    *,
    since: ChangePosition = BEGIN,
    touch_since: ChangePosition = BEGIN,
) -> Iterator[PartitionChangeRecord]:
    """Yield the partition changes that follow from `change`, by topic name and index, from `since`
    on.

    Args:
        touch_since: if replicas in a directory leave, partitions from here on get a new partition
            epoch
            in any case; an earlier step has changed those before.
    """
    elections = ElectionContext(view, change)
    by_directory = change.directories is not None
    concerns = _concerns(view, change)
    target_of = cache(partial(_target, change.leaving))
    # A step continues at the end of the step before, without a scan of the partitions before it.
    for topic, index, partition in partitions_since(view, since):
        if not concerns(partition):
            continue
        touch = by_directory and (topic.name, index) >= touch_since
        changed = elections.change_partition(
            topic, index, partition, cause, target=target_of(partition.isr), touch=touch
        )
        if changed is not None:
            yield changed.record


def partitions_since(
    view: ControllerView, since: ChangePosition = BEGIN
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield all partitions, by topic name and index, from `since` on."""
    by_name = view.image.topics.by_name
    for name in sorted(name for name in by_name if name >= since.topic):
        topic = by_name[name]
        first = since.partition if name == since.topic else 0
        partitions = topic.partitions
        for index in sorted(partitions):
            if index >= first:
                yield topic, index, partitions[index]


def _concerns(view: ControllerView, change: BrokerChange) -> Callable[[PartitionImage], bool]:
    """Return a check whether `change` may affect a partition; it is called for every partition."""
    leaving, joining = change.leaving, change.joining
    gone = leaving | change.unclean
    directories = change.directories
    # ELR members left from when the feature was on are no reason for a change.
    elr_enabled = view.elr_enabled

    def concerns(partition: PartitionImage) -> bool:
        if directories is not None:
            return any(partition.directory_of(b) in directories for b in leaving)
        if not gone.isdisjoint(partition.isr):
            return True
        if partition.elr and elr_enabled and not gone.isdisjoint(partition.elr):
            return True
        return partition.leader == NO_LEADER and not joining.isdisjoint(partition.replicas)

    return concerns


def _target(leaving: frozenset[int], isr: tuple[int, ...]) -> Target:
    """Return a target without leaving brokers in the ISR; `change_partition` removes the
    unclean."""
    if leaving.isdisjoint(isr):
        return AS_IT_IS
    return Target(isr=tuple(r for r in isr if r not in leaving))
