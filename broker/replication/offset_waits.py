"""Waits for a watermark of a partition to reach an offset."""

from __future__ import annotations

from typing import Any

from broker.replication.waits import CommitWaiter
from protocol.errors import ErrorCode


class OffsetWaits(list[tuple[int, CommitWaiter, Any]]):
    """Waits for one watermark, by offset; for one offset in the order they came.

    A list itself, so that a partition for which nobody waits costs little memory and no call.
    """

    __slots__ = ()

    def add(self, offset: int, waiter: CommitWaiter, slot: Any) -> None:
        at = len(self)
        while at and self[at - 1][0] > offset:
            at -= 1  # a repeated batch waits for what was appended before others that wait
        self.insert(at, (offset, waiter, slot))

    def reached(self, offset: int) -> None:
        """The watermark stands at `offset`: resolves the waits for that or less."""
        count = 0
        for wait in self:
            if wait[0] > offset:
                break
            count += 1
        self._resolve(count, ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """The watermark moves no more here."""
        self._resolve(len(self), error)

    def _resolve(self, count: int, error: ErrorCode) -> None:
        done = self[:count]
        del self[:count]
        for _, waiter, slot in done:
            waiter.resolved(slot, error)
