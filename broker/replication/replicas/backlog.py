"""Queue of partitions whose replicas are still to be created, changed or deleted."""

from __future__ import annotations

from collections import OrderedDict

PartitionId = tuple[bytes, int]


class Backlog:
    """A queue that holds each partition once. Partitions that this broker is to lead come first:
    their followers cannot fetch before."""

    __slots__ = ("_rest", "_urgent")

    def __init__(self) -> None:
        self._urgent: OrderedDict[PartitionId, None] = OrderedDict()
        self._rest: OrderedDict[PartitionId, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._rest)

    def add(self, key: PartitionId, *, urgent: bool) -> None:
        if urgent:
            self._rest.pop(key, None)
            self._urgent[key] = None
        elif key not in self._urgent:
            self._rest[key] = None

    def take(self) -> PartitionId:
        """Remove and return the next partition. The queue must not be empty."""
        key, _ = (self._urgent or self._rest).popitem(last=False)
        return key
