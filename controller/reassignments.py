"""Partition reassignments: which ones are going on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from controller.decision import ControllerView
from metalog.image.values import PartitionImage


class Reassignment(NamedTuple):
    topic: str
    partition_id: int
    partition: PartitionImage


def is_reassigning(partition: PartitionImage) -> bool:
    """Whether replicas are being added to or removed from the partition."""
    return bool(partition.adding or partition.removing)


def list_reassignments(
    view: ControllerView, named: Sequence[tuple[str, Sequence[int]]] | None
) -> Iterator[Reassignment]:
    """Those among the named partitions, or among all, that are being reassigned."""
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
