"""Partitions of the metadata topic that are searched for removals of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocol.ids import TopicId
from storage.tiered.states import PartitionDeleteState, partition_may_become
from storage.tiered.values import PartitionDeletion, RemotePartition


class RemovalWatch:
    """A partition of the topic that is searched for partition removals."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.changed = changed
        self.target: int | None = None
        self.reached = 0
        self.deletions: dict[tuple[TopicId, int], PartitionDeletion] = {}

    @property
    def ready(self) -> bool:
        return self.target is not None and self.reached >= self.target

    def saw(self, record: PartitionDeletion) -> None:
        """Note a removal record, unless caches refuse it after the records before it. Records may
        come in any order: the topic may be read again from its start."""
        known = self.deletions.get(record.partition.identity)
        state = None if known is None else known.state
        if state is not record.state and partition_may_become(state, record.state):
            self.deletions[record.partition.identity] = record
            if self.ready:
                self.changed()

    def got_to(self, offset: int) -> None:
        """Note that all records below `offset` were read."""
        was_ready = self.ready
        self.reached = max(self.reached, offset)
        if self.ready and not was_ready:
            self.changed()

    def ends_at(self, offset: int) -> None:
        """Note an end offset of the topic's partition, from when the watch began or later."""
        if self.target is None:
            self.target = offset
            if self.ready:
                self.changed()


class RemovalWatches:
    """The watches of a journal, by partition of the topic."""

    def __init__(self) -> None:
        self._watches: dict[int, RemovalWatch] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._watches)

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, number: int, changed: Callable[[], None]) -> None:
        """Watch a partition of the topic; `changed` is called when its removals change."""
        self._watches[number] = RemovalWatch(changed)

    def remove(self, number: int) -> None:
        self._watches.pop(number, None)

    def get(self, number: int) -> RemovalWatch | None:
        return self._watches.get(number)

    def begin_again(self, number: int) -> None:
        """Drop all that was read: the topic's partition is read again from its start."""
        watch = self._watches.get(number)
        if watch is not None:
            self._watches[number] = RemovalWatch(watch.changed)

    def removals(self) -> list[RemotePartition]:
        """Return partitions whose removal is marked and not finished, as far as it is known."""
        return [
            deletion.partition
            for watch in self._watches.values()
            if watch.ready
            for deletion in watch.deletions.values()
            if deletion.state is not PartitionDeleteState.FINISHED
        ]
