"""Partition changes that follow from a change of brokers.

Fencing, unfencing, controlled shutdown, removal and an unclean shutdown differ only in who leaves,
who joins and whose log is doubted; the partitions concerned all go through `change_partition`.
The records that come from here stand in the same atomic batch as the broker's own record.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange, ElectionContext
from controller.elections.partition_change import Target
from metalog.image.values import NO_LEADER, PartitionImage
from protocol.schema import MetadataRecord


def records_for_change(
    view: ControllerView, change: BrokerChange, cause: Cause
) -> Iterator[MetadataRecord]:
    """Partition changes that follow from `change`, in the order of topic names and partitions."""
    elections = ElectionContext(view, change)
    touch = change.directories is not None
    by_name = view.image.topics.by_name
    for name in sorted(by_name):
        topic = by_name[name]
        concerned = [
            (index, partition)
            for index, partition in topic.partitions.items()
            if _concerns(view, partition, change)
        ]
        for index, partition in sorted(concerned):
            target = _target(partition, change)
            changed = elections.change_partition(
                topic, index, partition, cause, target=target, touch=touch
            )
            if changed is not None:
                yield changed.record


def _concerns(view: ControllerView, partition: PartitionImage, change: BrokerChange) -> bool:
    if change.directories is not None:
        return any(partition.directory_of(b) in change.directories for b in change.leaving)
    # What is left of an ELR when the feature was turned off is no reason for a change of its own.
    elr = partition.elr if view.elr_enabled else ()
    if any(b in partition.isr or b in elr for b in change.leaving | change.unclean):
        return True
    return partition.leader == NO_LEADER and any(r in change.joining for r in partition.replicas)


def _target(partition: PartitionImage, change: BrokerChange) -> Target:
    """Leaving brokers leave the ISR; what an unclean one loses, `change_partition` takes away."""
    isr = tuple(r for r in partition.isr if r not in change.leaving)
    return Target(isr=isr if isr != partition.isr else None)
