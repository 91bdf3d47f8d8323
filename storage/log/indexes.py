"""Offset, time and transaction index of a segment, in Kafka's formats.

    .index      8 bytes: offset relative to the segment's base, position in the .log
    .timeindex  12 bytes: timestamp, relative offset of the batch that first reached it
    .txnindex   34 bytes: one aborted transaction

Entries are sparse (one per `index.interval.bytes`) and are hints: everything here can be rebuilt
from the segment. So new entries collect in memory. They reach the file in blocks, or when the
segment is flushed or closed. A crash costs a rebuild of the segments that recovery reads anyway.
Kafka preallocates index files and truncates them when the segment closes; Kraftbox lets them grow.

A lookup is a binary search by pread. The window of entries in which it ended is cached: a reader
that starts at the beginning of a log looks up neighbouring entries one after another.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.files import File, Files

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
TXN_ENTRY_BYTES: Final = 34

_PENDING_BYTES_MAX = 4096
_WINDOW_ENTRIES = 1024

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_BLOCK = 128
"""Entries of a transaction index that are read at once: 4 KiB."""
_UNKNOWN = -1
_txn_entry = struct.Struct(">hqqqq")
_txn_body = struct.Struct(">2xqqqq")


class CorruptIndex(Exception):
    """An index file that cannot belong to its segment; the caller rebuilds it."""


class _SparseIndex:
    """Sorted entries of one fixed size: those in the file, then those not yet written."""

    entry_bytes: int
    layout: struct.Struct

    __slots__ = (
        "_file", "_files", "_pending", "_stale", "_window", "_window_at", "_written",
        "base_offset", "max_entries", "path",
    )  # fmt: skip

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(1, max_bytes // self.entry_bytes)
        self._files = files
        self._file: File | None = None
        self._pending = bytearray()
        self._written = 0
        self._stale = False
        # Cached entries from number `_window_at` on, as the last search read them.
        self._window = b""
        self._window_at = 0

    def create(self) -> None:
        """Start an empty index, in memory.

        The content of an existing file no longer counts, but stays until entries are written out. A
        start after a crash rebuilds thousands of indexes, and most come out unchanged. A new file
        is created on demand: most partitions of a new topic never write an entry.
        """
        self._file = None
        self._stale = False
        if self._files.exists(self.path):
            self._file = self._files.open(self.path)
            self._stale = self._file.size() > 0
        self._pending.clear()
        self._written = 0
        self._window = b""

    def load(self) -> None:
        """Open the existing file.

        Raises:
            FileNotFoundError: there is no file.
            CorruptIndex: the file cannot belong to the segment.
            OSError: the caller must close the file.
        """
        file = self._files.open(self.path)
        size = file.size()
        if size % self.entry_bytes:
            file.close()
            raise CorruptIndex(f"{self.path}: {size} bytes are no whole entries")
        self._file = file
        self._window = b""
        self._written = size // self.entry_bytes
        if self._written and not self._plausible(self._entry(self._written - 1)):
            self.close_file()
            raise CorruptIndex(f"{self.path}: the last entry is before the segment")

    def _plausible(self, last: tuple[int, int]) -> bool:
        raise AssertionError("abstract")

    @property
    def file(self) -> File | None:
        return self._file

    @property
    def count(self) -> int:
        return self._written + len(self._pending) // self.entry_bytes

    @property
    def is_full(self) -> bool:
        return self.count >= self.max_entries

    def _push(self, entry: bytes) -> None:
        self._pending += entry
        if len(self._pending) >= _PENDING_BYTES_MAX:
            # The batch is in the log already. If the disk refuses this entry, the next flush or
            # roll fails, too, and its caller can handle the error.
            with contextlib.suppress(OSError):
                self.write_out()

    def write_out(self) -> None:
        """Write all entries to the file, without a flush."""
        if self._stale:
            self._replace()
        if self._pending:
            if self._file is None:
                self._file = self._files.open(self.path, create=True)
            self._file.append(self._pending)
            self._written += len(self._pending) // self.entry_bytes
            self._pending.clear()

    def _replace(self) -> None:
        """Drop the file's content from before `create`, unless it equals the new entries."""
        assert self._file is not None
        size = len(self._pending)
        if self._file.size() == size and self._file.pread(size, 0) == self._pending:
            self._written = size // self.entry_bytes
            self._pending.clear()
        else:
            self._file.truncate(0)
        self._stale = False

    def _read(self, first: int, count: int) -> bytes:
        """Return the bytes of entries [first, first + count), from the file and from memory."""
        size = self.entry_bytes
        if first >= self._written:
            start = (first - self._written) * size
            return bytes(self._pending[start : start + count * size])
        assert self._file is not None
        on_disk = min(count, self._written - first)
        data = self._file.pread(on_disk * size, first * size)
        return data + bytes(self._pending[: (count - on_disk) * size])

    def _entry(self, at: int) -> tuple[int, int]:
        raise AssertionError("abstract")

    def _column(self, at: int, column: int) -> int:
        value: int = self.layout.unpack(self._read(at, 1))[column]
        return value

    def _floor(self, column: int, target: int) -> int:
        """Return the number of the last entry whose stored `column` is not above `target`; -1 if
        none."""
        below = self._below_in_window(column, target)
        if (below or not self._window_at) and below * self.entry_bytes < len(self._window):
            return self._window_at + below - 1
        low, high = 0, self.count
        if not high:
            return -1
        if self._column(high - 1, column) <= target:
            return high - 1
        while high - low > _WINDOW_ENTRIES:
            middle = (low + high) // 2
            if self._column(middle, column) <= target:
                low = middle
            else:
                high = middle
        self._window_at = low
        self._window = self._read(low, min(_WINDOW_ENTRIES, self.count - low))
        return low + self._below_in_window(column, target) - 1

    def _below_in_window(self, column: int, target: int) -> int:
        """Return how many entries of the window are not above `target`."""
        window, size, unpack = self._window, self.entry_bytes, self.layout.unpack_from
        positions = range(0, len(window), size)
        return bisect_right(positions, target, key=lambda at: int(unpack(window, at)[column]))

    def _decode(self, data: bytes) -> Iterator[tuple[int, int]]:
        raise AssertionError("abstract")

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        self._window = b""
        if count < self._written:
            assert self._file is not None
            self._pending.clear()
            self._file.truncate(count * self.entry_bytes)
            self._written = count
        else:
            del self._pending[(count - self._written) * self.entry_bytes :]

    def entries(self) -> list[tuple[int, int]]:
        """Return all entries as (offset, position) or (timestamp, offset)."""
        return list(self._decode(self._read(0, self.count)))

    def close(self) -> None:
        self.write_out()
        if self._file is None:
            self._files.touch(self.path)
        self.close_file()

    def close_file(self) -> None:
        """Close the file and drop unwritten entries."""
        self._pending.clear()
        self._window = b""
        self._stale = False
        if self._file is not None:
            self._file.close()
            self._file = None


class OffsetIndex(_SparseIndex):
    """Maps the last offset of a batch to the batch's position."""

    entry_bytes = OFFSET_ENTRY_BYTES
    layout = OFFSET_ENTRY
    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        self._push(OFFSET_ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the largest entry not above `offset`; (base offset, 0) before the first."""
        at = self._floor(0, offset - self.base_offset)
        return self._entry(at) if at >= 0 else (self.base_offset, 0)

    def beyond(self, offset: int) -> int | None:
        """Return an upper bound for the position of the batch that contains `offset`.

        It is the position in the first entry at or above `offset`; None behind the last entry.
        """
        at = self._floor(0, offset - self.base_offset - 1) + 1
        return self._entry(at)[1] if at < self.count else None

    def begin_before(self, position: int) -> int:
        """Return the last position up to `position` at which a batch is known to begin."""
        at = self._floor(1, position)
        return self._entry(at)[1] if at >= 0 else 0

    def offset_at(self, position: int) -> int:
        """Return an offset whose batch lies shortly before `position`."""
        at = self._floor(1, position)
        return self._entry(at)[0] if at >= 0 else self.base_offset

    def last(self) -> tuple[int, int]:
        """Return the last entry; (base offset, 0) if the index is empty."""
        count = self.count
        return self._entry(count - 1) if count else (self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        self.cut(self._floor(0, offset - 1 - self.base_offset) + 1)

    def _entry(self, at: int) -> tuple[int, int]:
        relative, position = OFFSET_ENTRY.unpack(self._read(at, 1))
        return self.base_offset + relative, position

    def _decode(self, data: bytes) -> Iterator[tuple[int, int]]:
        base = self.base_offset
        for relative, position in OFFSET_ENTRY.iter_unpack(data):
            yield base + relative, position

    def _plausible(self, last: tuple[int, int]) -> bool:
        return last[0] >= self.base_offset and last[1] >= 0


def entry_from(index: OffsetIndex, position: int) -> tuple[int, int] | None:
    """Return the first entry with this position or a later one; None behind the last entry."""
    at = index._floor(1, position - 1) + 1
    return index._entry(at) if at < index.count else None


class TimeIndex(_SparseIndex):
    """Maps the highest timestamp so far to the last offset of the batch that has it."""

    entry_bytes = TIME_ENTRY_BYTES
    layout = TIME_ENTRY
    __slots__ = ("_last",)

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, path, base_offset, max_bytes)
        self._last: tuple[int, int] | None = None

    def maybe_append(self, timestamp_ms: int, offset: int, *, final: bool = False) -> None:
        """Add an entry if the timestamp has grown. With `final`, add it even if the index is
        full."""
        last_timestamp, last_offset = self.last()
        if timestamp_ms <= last_timestamp or offset < last_offset:
            return
        if self.is_full and not final:
            return
        self._push(TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset))
        self._last = (timestamp_ms, offset)

    @property
    def is_full(self) -> bool:
        # One place is reserved for the entry that closes the segment.
        return self.count >= self.max_entries - 1

    def last(self) -> tuple[int, int]:
        """Return the last (timestamp, offset); (-1, base offset) if the index is empty."""
        if self._last is None:
            count = self.count
            self._last = self._entry(count - 1) if count else (-1, self.base_offset)
        return self._last

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """Return the last entry with a timestamp not above this one; (-1, base offset) if none."""
        at = self._floor(0, timestamp_ms)
        return self._entry(at) if at >= 0 else (-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        self.cut(self._floor(1, offset - 1 - self.base_offset) + 1)

    def cut(self, count: int) -> None:
        super().cut(count)
        self._last = None

    def create(self) -> None:
        super().create()
        self._last = None

    def load(self) -> None:
        self._last = None
        super().load()

    def _entry(self, at: int) -> tuple[int, int]:
        timestamp, relative = TIME_ENTRY.unpack(self._read(at, 1))
        return timestamp, self.base_offset + relative

    def _decode(self, data: bytes) -> Iterator[tuple[int, int]]:
        base = self.base_offset
        for timestamp, relative in TIME_ENTRY.iter_unpack(data):
            yield timestamp, base + relative

    def _plausible(self, last: tuple[int, int]) -> bool:
        first = self._entry(0)
        return last[0] >= first[0] and last[1] >= self.base_offset


class AbortedTxn(NamedTuple):
    """One aborted transaction of a producer within a log."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset after this transaction ended."""


def decode_aborted(data: bytes) -> list[AbortedTxn]:
    """Decode the whole entries of a transaction index. Raises CorruptIndex for an unknown
    version."""
    whole = data[: len(data) - len(data) % TXN_ENTRY_BYTES]
    if any(whole[::TXN_ENTRY_BYTES]) or any(whole[1::TXN_ENTRY_BYTES]):
        raise CorruptIndex("aborted transaction of another version than 0")
    return list(map(AbortedTxn._make, _txn_body.iter_unpack(whole)))


class TxnIndex:
    """The aborted transactions that ended in one segment; most segments have no such file.

    Entries are in the order of their markers. A search reads only the blocks of entries that may
    contain results. A summary of each block that was read stays in memory: 24 bytes for 4 KiB.
    """

    __slots__ = ("_count", "_file", "_files", "_firsts", "_markers", "_stables", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._file: File | None = None
        self._count = _UNKNOWN
        # Of each full block: its lowest first offset, its last marker, and the last stable offset
        # after that; or _UNKNOWN.
        self._firsts, self._markers, self._stables = array("q"), array("q"), array("q")

    @property
    def file(self) -> File | None:
        return self._file

    @property
    def count(self) -> int:
        """The number of whole entries."""
        if self._count < 0:
            self._count = 0
            if self._file is None and self._files.exists(self.path):
                self._file = self._files.open(self.path)
            if self._file is not None:
                self._count = self._file.size() // TXN_ENTRY_BYTES
        return self._count

    def note_missing(self) -> None:
        """Note that there is no file, so that no search looks for it."""
        self._count = 0

    def append(self, aborted: AbortedTxn) -> None:
        size_bytes = self.count * TXN_ENTRY_BYTES
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        if self._file.size() > size_bytes:
            self._file.truncate(size_bytes)  # an incomplete entry
        self._file.append(_txn_entry.pack(0, *aborted))
        self._count += 1

    def entries(self) -> list[AbortedTxn]:
        """Return all whole entries. Raises CorruptIndex for an unknown version."""
        return self._read(0, self.count)

    def _read(self, first: int, end: int) -> list[AbortedTxn]:
        """Return the entries [first, end). Raises CorruptIndex."""
        if first >= end:
            return []
        assert self._file is not None
        size = TXN_ENTRY_BYTES
        try:
            return decode_aborted(self._file.pread((end - first) * size, first * size))
        except CorruptIndex as error:
            raise CorruptIndex(f"{self.path}: {error}") from None

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTxn]) -> bool:
        """Add the transactions that overlap [start, end) to `found`.

        Returns whether all transactions with later markers begin at or above `end_offset`. Raises
        CorruptIndex.
        """
        count = self.count
        for block in range(self._first_block(start_offset), -(-count // _BLOCK)):
            full = (block + 1) * _BLOCK <= count
            if not full or self._firsts[block] < end_offset:
                entries = self._read_block(block)
                if full:
                    self._summarise(block, entries)
                found += [
                    txn
                    for txn in entries
                    if txn.last_offset >= start_offset and txn.first_offset < end_offset
                ]
                if not entries or entries[-1].last_stable_offset >= end_offset:
                    return bool(entries)
            elif self._stables[block] >= end_offset:
                return True
        return False

    def _first_block(self, offset: int) -> int:
        """Return the number of the first block that may contain a marker at or above `offset`."""
        full = self.count // _BLOCK
        for column in (self._firsts, self._markers, self._stables):
            del column[full:]
            column.extend([_UNKNOWN] * (full - len(column)))
        return bisect_left(range(full), offset, key=self._last_marker)

    def _last_marker(self, block: int) -> int:
        if self._markers[block] < 0:
            at = (block + 1) * _BLOCK
            self._markers[block] = self._read(at - 1, at)[0].last_offset
        return self._markers[block]

    def _summarise(self, block: int, entries: list[AbortedTxn]) -> None:
        if self._firsts[block] < 0:
            self._firsts[block] = min(txn.first_offset for txn in entries)
            self._stables[block] = entries[-1].last_stable_offset

    def _read_block(self, block: int) -> list[AbortedTxn]:
        return self._read(block * _BLOCK, min((block + 1) * _BLOCK, self.count))

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that end at `offset` or later."""
        if not self.count:
            return
        block = self._first_block(offset)
        keep = block * _BLOCK + sum(txn.last_offset < offset for txn in self._read_block(block))
        if keep < self._count:
            self._cut(keep)

    def reset(self) -> None:
        """Drop all entries, before the segment is read from scratch."""
        if self._file is not None or self._files.exists(self.path):
            self._file = self._file or self._files.open(self.path)
            self._cut(0)
        self._count = 0

    def _cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        assert self._file is not None
        self._file.truncate(count * TXN_ENTRY_BYTES)
        self._count = count
        for column in (self._firsts, self._markers, self._stables):
            del column[count // _BLOCK :]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._count = _UNKNOWN
