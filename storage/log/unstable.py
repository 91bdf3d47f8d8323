"""Transactions of one log that keep its last stable offset (LSO) below its high watermark.

A transaction is unstable from its first batch until its end marker lies below the high watermark.
The LSO is the first offset of the oldest one. Transactions begin in the order of their first
offsets and end in the order of their markers. So each step costs the same, however many there are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple


class EndedTxn(NamedTuple):
    """A transaction with an end marker."""

    marker_offset: int
    first_offset: int


class UnstableTransactions:
    """The unstable transactions of one log, by their first offsets."""

    __slots__ = ("_all", "_open", "ended", "first_offset")

    def __init__(self) -> None:
        # Both in the order of the first offsets. A plain dictionary finds its first key slowly
        # after many removals at its front.
        self._all: OrderedDict[int, None] = OrderedDict()
        self._open: OrderedDict[int, None] = OrderedDict()
        self.ended: deque[EndedTxn] = deque()
        """Those whose marker is not known to lie below the high watermark, in marker order."""
        self.first_offset: int | None = None
        """First offset of the oldest unstable transaction; None if all are stable."""

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the oldest transaction without a marker; None if all have one."""
        return next(iter(self._open), None)

    def begin(self, first_offset: int) -> None:
        """Add a transaction; its first offset is above those of all others."""
        self._all[first_offset] = None
        self._open[first_offset] = None
        if self.first_offset is None:
            self.first_offset = first_offset

    def end(self, first_offset: int, marker_offset: int) -> None:
        """Note the end marker of an open transaction; it lies above all others."""
        self._open.pop(first_offset, None)
        self.ended.append(EndedTxn(marker_offset, first_offset))

    def settle(self, offset: int) -> None:
        """Remove the transactions whose marker lies below `offset`, the high watermark."""
        ended = self.ended
        while ended and ended[0].marker_offset < offset:
            self._all.pop(ended.popleft().first_offset, None)
        self._find_first()

    def forget(self, first_offset: int) -> None:
        """Remove a transaction that has no marker yet."""
        self._open.pop(first_offset, None)
        self._all.pop(first_offset, None)
        self._find_first()

    def clear(self) -> None:
        self._all.clear()
        self._open.clear()
        self.ended.clear()
        self.first_offset = None

    def add(self, open_offsets: Iterable[int], ended: Iterable[EndedTxn] = ()) -> None:
        """Add transactions in any order; known ones are ignored.

        Args:
            open_offsets: first offsets of open transactions.
        """
        self._open = OrderedDict.fromkeys(sorted({*self._open, *open_offsets}))
        self.ended = deque(sorted({*self.ended, *ended}))
        firsts = {*self._open, *(txn.first_offset for txn in self.ended)}
        self._all = OrderedDict.fromkeys(sorted(firsts))
        self._find_first()

    def _find_first(self) -> None:
        self.first_offset = next(iter(self._all), None)
