"""Waits for a watermark of a partition to reach an offset."""

from __future__ import annotations

from typing import Any

from broker.replication.waiting.waits import CommitWaiter
from protocol.errors import ErrorCode


class OffsetWaits(list[tuple[int, CommitWaiter, Any]]):
    """Waits for one watermark, ordered by offset and then by arrival.

    A list itself, so that a partition without waits costs little memory and no call.
    """

    __slots__ = ()

    def add(self, offset: int, waiter: CommitWaiter, slot: Any) -> None:
        at = len(self)
        while at and self[at - 1][0] > offset:
            at -= 1  # a repeated batch waits for an offset below those of later appends
        self.insert(at, (offset, waiter, slot))

    def reached(self, offset: int) -> None:
        """Resolve the waits for `offset` or less, after the watermark has reached it."""
        count = 0
        for wait in self:
            if wait[0] > offset:
                break
            count += 1
        self._resolve(count, ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Fail all waits: the watermark does not move here any more."""
        self._resolve(len(self), error)

    def _resolve(self, count: int, error: ErrorCode) -> None:
        done = self[:count]
        del self[:count]
        for _, waiter, slot in done:
            waiter.resolved(slot, error)
