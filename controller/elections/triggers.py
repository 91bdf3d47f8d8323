"""Partition changes that follow from a change of brokers.

Fencing, unfencing, controlled shutdown, removal and an unclean shutdown differ only in who leaves,
who joins and whose log is doubted; the partitions concerned all go through `change_partition`.
The records that come from here stand in the same atomic batch as the broker's own record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.context import AS_IT_IS, BrokerChange, ElectionContext
from controller.elections.partition_change import Target
from metalog.image.values import NO_LEADER, PartitionImage
from protocol.metadata import PartitionChangeRecord


def records_for_change(
    view: ControllerView, change: BrokerChange, cause: Cause, *, since: str = ""
) -> Iterator[PartitionChangeRecord]:
    """Partition changes that follow from `change`, in the order of topic names and partitions,
    from the topic `since` on."""
    elections = ElectionContext(view, change)
    touch = change.directories is not None
    concerns = _concerns(view, change)
    target_of = cache(partial(_target, change.leaving))
    by_name = view.image.topics.by_name
    for name in sorted(name for name in by_name if name >= since):
        topic = by_name[name]
        concerned = [entry for entry in topic.partitions.items() if concerns(entry[1])]
        for index, partition in sorted(concerned):
            changed = elections.change_partition(
                topic, index, partition, cause, target=target_of(partition.isr), touch=touch
            )
            if changed is not None:
                yield changed.record


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
