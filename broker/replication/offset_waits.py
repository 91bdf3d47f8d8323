"""Waits for a watermark of a partition to reach an offset."""

from __future__ import annotations

from typing import Any

from broker.replication.waits import CommitWaiter
from protocol.errors import ErrorCode


class OffsetWaits:
    """Everybody who waits for one watermark, by offset; of one offset in the order they came."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        # A list: a partition has few of them, and an empty deque takes ten times the memory.
        self._waits: list[tuple[int, CommitWaiter, Any]] = []

    @property
    def lowest(self) -> int | None:
        """The offset that is waited for first."""
        return self._waits[0][0] if self._waits else None

    def add(self, offset: int, waiter: CommitWaiter, slot: Any) -> None:
        waits = self._waits
        at = len(waits)
        while at and waits[at - 1][0] > offset:
            at -= 1  # a repeated batch waits for what was appended before others that wait
        waits.insert(at, (offset, waiter, slot))

    def reached(self, offset: int) -> None:
        """The watermark stands at `offset`: resolves whoever waits for that or less."""
        waits = self._waits
        count = 0
        for wait in waits:
            if wait[0] > offset:
                break
            count += 1
        if not count:
            return
        done = waits[:count]
        del waits[:count]
        for _, waiter, slot in done:
            waiter.resolved(slot, ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """The watermark moves no more here."""
        waits, self._waits = self._waits, []
        for _, waiter, slot in waits:
            waiter.resolved(slot, error)
