"""Partitions whose turn to be made, changed or deleted is still to come."""

from __future__ import annotations

from collections import OrderedDict

PartitionId = tuple[bytes, int]


class Backlog:
    """Each partition once; first those that this broker is to lead, because followers find a leader
    only when it is there."""

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
        """The next one; there is one."""
        key, _ = (self._urgent or self._rest).popitem(last=False)
        return key
