"""Windows on a log: results of reads from the tier, kept for the next fetches.

A read returns more than one fetch may have, because each request costs the store a millisecond,
however little it returns. So the result is a window on the log that answers several fetches; each
part is cut out without a copy. Marks at regular byte distances spare a cut the iteration from the
beginning, which would take long for small batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.tiering.held import Part
from protocol.batch.header import iter_batches, parse_header
from protocol.schema import Buffer
from storage.log.indexes import AbortedTxn
from storage.tiered.batches import CheckedBatches, Mark
from storage.tiered.values import SegmentId

if TYPE_CHECKING:
    from storage.log.log import Log

_position: Final = attrgetter("position")
_next_offset: Final = attrgetter("next_offset")
_first_offset: Final = attrgetter("first_offset")


class Stream(NamedTuple):
    """Key of windows that answer the same fetches."""

    topic_id: bytes
    partition: int
    committed: bool
    """With the aborted transactions that a read_committed reader must skip."""


class Place(NamedTuple):
    """The position of a batch in the tier."""

    segment_id: SegmentId
    position: int


class Cut(NamedTuple):
    """Whole batches out of a window, for one fetch."""

    records: Buffer
    last_offset: int
    aborted: tuple[AbortedTxn, ...]
    """Aborted transactions that overlap them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Whole, verified batches, contiguous in the log."""

    records: Buffer
    """Usually a part of the store's response."""
    first_offset: int
    """The lowest offset that the first batch answers: within that batch, or before it where
    compaction left a gap."""
    last_offset: int
    last_epoch: int
    held_bytes: int
    """The size of the store's response that it keeps in memory."""
    end: Place | None
    """Position of the following batches in the tier; None if unknown."""
    marks: Sequence[Mark] = ()
    aborted: tuple[AbortedTxn, ...] = ()
    """Aborted transactions that overlap it; only for read_committed."""

    def cut(self, offset: int, max_bytes: int) -> Cut | None:
        """Return the batches from the one that has `offset`, or the next one, up to `max_bytes` but
        at least one; None without any."""
        records, marks = memoryview(self.records), self.marks
        start = _seek(records, marks, offset)
        if start is None:
            return None
        limit = start + max(max_bytes, 0)
        header = parse_header(records, start)
        end, last_offset = start + header.size_bytes, header.last_offset
        at = bisect_right(marks, limit, key=_position) - 1
        if at >= 0 and marks[at].position > end:
            end, last_offset = marks[at].position, marks[at].next_offset - 1
        # The next mark is behind the limit.
        for header, position in iter_batches(records[:limit], end):
            end, last_offset = position + header.size_bytes, header.last_offset
        aborted = self.aborted and tuple(
            txn
            for txn in self.aborted
            if offset <= txn.last_offset and txn.first_offset <= last_offset
        )
        return Cut(records[start:end], last_offset, aborted)


def window_of(
    data: Buffer, checked: CheckedBatches, offset: int, end: Place | None
) -> Window | None:
    """Return a window of the whole batches in `data` from the one that has `offset`, or the next
    one; None without any."""
    whole = memoryview(data)[: checked.whole_bytes]
    start = _seek(whole, checked.marks, offset)
    if start is None:
        return None
    records: Buffer = whole[start:]
    held_bytes = len(data)
    if 2 * len(records) <= len(data):  # a small part would keep all of it in memory
        records = Part(records)
        held_bytes = len(records)
    first_mark = bisect_right(checked.marks, start, key=_position)
    return Window(
        records=records,
        first_offset=min(offset, parse_header(whole, start).base_offset),
        last_offset=checked.next_offset - 1,
        last_epoch=checked.last_epoch,
        held_bytes=held_bytes,
        end=end,
        marks=[Mark(at - start, behind) for at, behind in checked.marks[first_mark:]],
    )


def _seek(whole: memoryview, marks: Sequence[Mark], offset: int) -> int | None:
    """Return the position of the first batch that does not end before `offset`, or None."""
    at = bisect_right(marks, offset, key=_next_offset) - 1
    for header, position in iter_batches(whole, marks[at].position if at >= 0 else 0):
        if header.last_offset >= offset:
            return position
    return None


@dataclass(slots=True, eq=False)
class _Kept:
    stream: Stream
    log: Log
    window: Window
    since_ms: float


@dataclass(slots=True)
class KeptWindows:
    """Windows that fetches may take. The owner decides how many are kept. Windows that were read to
    the end are removed first, then the oldest."""

    bytes: int = 0
    unread_bytes: int = 0
    """Size of the windows not yet read to the end."""
    _unread: dict[Window, _Kept] = field(default_factory=dict)
    _spent: dict[Window, _Kept] = field(default_factory=dict)
    _by_offset: dict[Stream, list[Window]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._unread) + len(self._spent)

    def add(self, stream: Stream, log: Log, window: Window, now_ms: float) -> None:
        self._unread[window] = _Kept(stream, log, window, now_ms)
        self.bytes += window.held_bytes
        self.unread_bytes += window.held_bytes
        insort(self._by_offset.setdefault(stream, []), window, key=_first_offset)

    def find(self, stream: Stream, log: Log, offset: int) -> Window | None:
        """Return a window of this log that has `offset`. Of overlapping ones only the last is
        checked."""
        windows = self._by_offset.get(stream, ())
        at = bisect_right(windows, offset, key=_first_offset) - 1
        if at < 0 or windows[at].last_offset < offset:
            return None
        window = windows[at]
        kept = self._unread.get(window) or self._spent[window]
        return window if kept.log is log else None

    def spend(self, window: Window, now_ms: float) -> None:
        """Note that a window was read to the end. One that is not kept is ignored."""
        kept = self._unread.pop(window, None)
        if kept is not None:
            self.unread_bytes -= window.held_bytes
            kept.since_ms = now_ms
            self._spent[window] = kept

    def remove(self, window: Window) -> None:
        """Remove a window. One that is not kept is ignored."""
        self.spend(window, 0.0)
        kept = self._spent.pop(window, None)
        if kept is None:
            return
        self.bytes -= window.held_bytes
        windows = self._by_offset[kept.stream]
        windows.pop(self._number(windows, window))
        if not windows:
            del self._by_offset[kept.stream]

    def _number(self, windows: Sequence[Window], window: Window) -> int:
        at = bisect_left(windows, window.first_offset, key=_first_offset)
        while windows[at] is not window:  # others may begin there, too
            at += 1
        return at

    def remove_one(self) -> None:
        """Remove the window of least value: one read to the end, or else the oldest."""
        self.remove(next(iter(self._spent or self._unread)))

    def remove_older(self, than_ms: float) -> None:
        """Remove windows that were added, or read to the end, at `than_ms` or before."""
        for windows in (self._spent, self._unread):
            for window, kept in list(windows.items()):
                if kept.since_ms > than_ms:
                    break
                self.remove(window)
