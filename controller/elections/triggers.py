"""Partition changes that follow from a change of brokers.

Fencing, unfencing, controlled shutdown, removal and an unclean shutdown differ only in who leaves,
who joins and whose log is doubted; the partitions concerned all go through `change_partition`.

A broker may be in ten thousand of them, so they change in parts, each a batch that leaves a state
of its own. What a broker leaves it leaves before the record that says so, and the last part stands
in one batch with that record: whatever came in meanwhile, the broker is in nothing any more when it
counts as fenced, removed, or registered anew. It is unfenced with the first part, since nobody
fenced may lead.
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
"""Partitions that change before others have their turn: 3 ms, written down."""


class Place(NamedTuple):
    """A partition in the order in which changes are made: topics by name, then by index."""

    topic: str = ""
    partition: int = 0


BEGIN: Final = Place()


class Part(NamedTuple):
    """Some of the changes, and where the others go on; None: these are the last."""

    records: tuple[PartitionChangeRecord, ...] = ()
    since: Place | None = None


def part_of_changes(
    view: ControllerView,
    change: BrokerChange,
    cause: Cause,
    since: Place = BEGIN,
    changes_max: int = CHANGES_PER_STEP,
) -> Part:
    """At most so many of the changes that follow from `change`. They are only said to be the last
    after a look at every topic: what is done already may have been undone."""
    for start in dict.fromkeys((since, BEGIN)):
        changes = records_for_change(view, change, cause, since=start, touch_since=since)
        records = tuple(islice(changes, changes_max))
        if len(records) == changes_max:
            last = records[-1]
            name = view.image.topics.by_id[last.topic_id].name
            return Part(records, Place(name, last.partition_id + 1))
    return Part(records)


def records_for_change(
    view: ControllerView,
    change: BrokerChange,
    cause: Cause,
    *,
    since: Place = BEGIN,
    touch_since: Place = BEGIN,
) -> Iterator[PartitionChangeRecord]:
    """Partition changes that follow from `change`, in the order of topic names and partitions,
    from `since` on. Where replicas in a directory leave, those from `touch_since` on get a new
    partition epoch in any case: the ones before have it from an earlier step."""
    elections = ElectionContext(view, change)
    by_directory = change.directories is not None
    concerns = _concerns(view, change)
    target_of = cache(partial(_target, change.leaving))
    # A step goes on where the one before ended, without a look at what that has changed.
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
    view: ControllerView, since: Place = BEGIN
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """All partitions, in the order of topic names and partitions, from `since` on."""
    by_name = view.image.topics.by_name
    for name in sorted(name for name in by_name if name >= since.topic):
        topic = by_name[name]
        first = since.partition if name == since.topic else 0
        partitions = topic.partitions
        for index in sorted(partitions):
            if index >= first:
                yield topic, index, partitions[index]


def _concerns(view: ControllerView, change: BrokerChange) -> Callable[[PartitionImage], bool]:
    """Whether a partition has to be looked at. Every partition of the cluster is asked about."""
    leaving, joining = change.leaving, change.joining
    gone = leaving | change.unclean
    directories = change.directories
    # What is left of an ELR when the feature was turned off is no reason for a change of its own.
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
    """Leaving brokers leave the ISR; what an unclean one loses, `change_partition` takes away."""
    if leaving.isdisjoint(isr):
        return AS_IT_IS
    return Target(isr=tuple(r for r in isr if r not in leaving))
