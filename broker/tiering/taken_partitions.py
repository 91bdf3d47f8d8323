"""Shell: Partitions whose remote log metadata components of this broker use, and their subscribers.

A partition is unready until its cache contains all that was written before it was taken on, or
before this broker led it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from protocol.ids import TopicId
from storage.tiered.values import RemotePartition

Subscriber = Callable[[RemotePartition], None]


class TakenPartitions:
    """The partitions that a journal's components have taken on, each once or more often."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[TopicId, int], RemotePartition] = {}
        self._counts: dict[tuple[TopicId, int], int] = {}
        self._unready: defaultdict[int, dict[tuple[TopicId, int], RemotePartition]]
        self._unready = defaultdict(dict)
        """By partition of the topic."""
        self._subscribers: list[Subscriber] = []
        self._moved = asyncio.Event()

    def __contains__(self, partition: RemotePartition) -> bool:
        return partition.identity in self._partitions

    def __iter__(self) -> Iterator[RemotePartition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def count(self, partition: RemotePartition) -> int:
        """Return the number of components that have taken a partition on."""
        return self._counts.get(partition.identity, 0)

    def add(self, partition: RemotePartition) -> bool:
        """Count one more component for a partition. Returns: True if it is the first."""
        count = self.count(partition)
        self._counts[partition.identity] = count + 1
        if not count:
            self._partitions[partition.identity] = partition
        return not count

    def remove(self, partition: RemotePartition) -> bool:
        """Count one component less. Returns: True if it was the last, and the partition is
        removed."""
        count = self.count(partition)
        if count > 1:
            self._counts[partition.identity] = count - 1
        if count != 1:
            return False
        del self._counts[partition.identity]
        del self._partitions[partition.identity]
        for unready in self._unready.values():
            unready.pop(partition.identity, None)
        return True

    def clear(self) -> None:
        self._partitions.clear()
        self._counts.clear()

    # Readiness -------------------------------------------------------------------------------

    def add_unready(self, number: int, partition: RemotePartition) -> None:
        """Note a partition whose records in the topic's partition `number` must be read first."""
        self._unready[number][partition.identity] = partition

    def replace_unready(self, number: int, partitions: Iterable[RemotePartition]) -> None:
        """Set the unready partitions with records in the topic's partition `number`."""
        self._unready[number] = {partition.identity: partition for partition in partitions}

    def clear_unready(self) -> None:
        self._unready.clear()

    def unready(self, number: int) -> Collection[RemotePartition]:
        """Return the unready partitions with records in the topic's partition `number`."""
        unready = self._unready.get(number)
        return () if unready is None else unready.values()

    def become_ready(self, number: int, partition: RemotePartition) -> None:
        """Note that the records of a partition were read, and notify its subscribers."""
        self._unready[number].pop(partition.identity, None)
        self.notify(partition)

    # Notifications ---------------------------------------------------------------------------

    def subscribe(self, callback: Subscriber) -> None:
        """Register a callback for each partition whose cache has become ready or has changed."""
        self._subscribers.append(callback)

    def notify(self, partition: RemotePartition) -> None:
        """Call the subscribers, unless the partition was released."""
        taken = self._partitions.get(partition.identity)
        if taken is not None:
            for callback in self._subscribers:
                callback(taken)

    def wake(self) -> None:
        """End all `moved`: a partition became ready or was released."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def moved(self) -> None:
        """Wait until a partition becomes ready or is released."""
        await self._moved.wait()
