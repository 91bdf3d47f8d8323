"""The ordered segments of one log, and lookup of byte ranges in them.

Positions of recent batch boundaries in the last segment are remembered. The next offset of a
follower or consumer at the end is such a boundary, and so is the high watermark. So the usual read
needs neither an index nor a walk. All other reads need one index lookup and a walk of at most one
index interval.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, parse_header
from storage.files import File, Files
from storage.log.config import LogConfig
from storage.log.indexes import AbortedTxn, entry_from
from storage.log.segment import Segment

BOUNDARIES_MAX = 256
RECENT_BYTES = 32 << 20
"""Reads that begin this close to the end are assumed to be in the page cache."""
_RECENT_STEP_BYTES = 2 << 20


class SegmentSlice(NamedTuple):
    """Bytes to read: `size_bytes` within the reader's limit, of `limit_bytes` that are visible."""

    segment: Segment
    position: int
    size_bytes: int
    limit_bytes: int


class Segments:
    """At least one segment; the last one is writable."""

    __slots__ = (
        "_aborts", "_bases", "_boundaries", "_closed_bytes", "_recent", "_segments", "_swapping",
        "directory", "files", "generation",
    )  # fmt: skip

    def __init__(self, files: Files, directory: str, segments: list[Segment]) -> None:
        self.files = files
        self.directory = directory
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._boundaries: dict[int, int] = {}
        # Size of all segments but the last; None: not computed.
        self._closed_bytes: int | None = None
        # The closed segments with aborted transactions; None: not computed.
        self._aborts: list[Segment] | None = None
        # (size of the last segment, offset RECENT_BYTES before its end) at the last computation.
        self._recent: tuple[int, int] | None = None
        self._swapping: list[str] = []
        self.generation = 0
        """Increases when segments go: a file that was looked up before may be closed by now."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first_base_offset(self) -> int:
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        closed = self._closed_bytes
        if closed is None:
            closed = sum([segment.size_bytes for segment in self._segments[:-1]])
            self._closed_bytes = closed
        return closed + self._segments[-1].size_bytes

    def index_of(self, offset: int) -> int:
        """Return the number of the segment that contains `offset`; 0 for offsets before the
        first."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def holding(self, offset: int) -> list[Segment]:
        """Return the segment that contains `offset` and all later ones."""
        return self._segments[self.index_of(offset) :]

    # Changing --------------------------------------------------------------------------------

    def begin(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """Create a new last segment."""
        segment = Segment.create(self.files, self.directory, base_offset, config, now_ms)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._closed_bytes = self._aborts = None
        self._forget_positions()
        return segment

    def _forget_positions(self) -> None:
        self._boundaries.clear()
        self._recent = None

    def note_boundary(self, offset: int, position: int) -> None:
        """Remember a batch boundary in the last segment: `offset` begins, or will, at
        `position`."""
        boundaries = self._boundaries
        boundaries[offset] = position
        if len(boundaries) > BOUNDARIES_MAX:
            self._boundaries = dict(list(boundaries.items())[BOUNDARIES_MAX // 2 :])

    def cut(self, offset: int) -> int:
        """Remove the batches from `offset` on, whole batches only. Returns the next free offset."""
        self._forget_positions()
        self.abandon_swap()
        self.generation += 1
        if self.drop_from(bisect_right(self._bases, offset)):
            # Durable before the truncation: otherwise a crash could leave a hole between two
            # segments.
            self.files.fsync_dir(self.directory)
        return self.active.truncate_to(offset)

    def drop_from(self, keep: int) -> bool:
        """Remove the files of all segments but the first `keep`, the last one first. Returns
        whether any were removed."""
        self._forget_positions()
        self.abandon_swap()
        self.generation += 1
        self._closed_bytes = self._aborts = None
        doomed = self._segments[keep:]
        for segment in reversed(doomed):
            segment.delete()
            del self._segments[-1]
            del self._bases[-1]
        return bool(doomed)

    def take_oldest(self, count: int) -> list[Segment]:
        """Remove segments from the list. Their files stay for the caller to rename."""
        self.abandon_swap()
        self.generation += 1
        self._closed_bytes = self._aborts = None
        taken = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        return taken

    # Replacing -------------------------------------------------------------------------------

    def begin_swap(self, paths: Sequence[str]) -> None:
        """Note `.swap` files that are about to replace segments; a start would now finish the
        swap."""
        self._swapping = list(paths)

    def abandon_swap(self) -> None:
        """Remove the pending `.swap` files: segments that they would replace change or are
        removed."""
        paths, self._swapping = self._swapping, []
        for path in paths:
            if self.files.exists(path):
                self.files.unlink(path)
        if paths:
            self.files.fsync_dir(self.directory)

    def is_swapping(self, paths: Sequence[str]) -> bool:
        return self._swapping == list(paths)

    def commit_swap(self) -> None:
        """Begin renaming the old files: the swap can no longer be abandoned."""
        self._swapping = []
        self.generation += 1

    def find_closed(self, bases: Sequence[int]) -> list[Segment] | None:
        """Return the segments with these base offsets if they exist, adjacent and closed; else
        None."""
        at = bisect_left(self._bases, bases[0])
        end = at + len(bases)
        if end >= len(self._bases) or self._bases[at:end] != list(bases):
            return None
        return self._segments[at:end]

    def replace(self, old: Sequence[Segment], produced: Sequence[Segment]) -> None:
        """Replace the adjacent segments `old` by `produced`."""
        self._closed_bytes = self._aborts = None
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = produced
        self._bases[at : at + len(old)] = [segment.base_offset for segment in produced]

    def unflushed_files(self, recovery_point: int) -> list[File]:
        """Return the open files that may hold unflushed bytes above the recovery point."""
        files: list[File] = []
        # Begin one offset earlier: a truncation to a segment's end must become durable too.
        for segment in self.holding(recovery_point - 1):
            if segment is not self.active:
                segment.seal()
            files += segment.open_files()
        return files

    # Finding ---------------------------------------------------------------------------------

    def is_recent(self, offset: int) -> bool:
        """Return whether a read from `offset` on probably finds its data in the page cache."""
        active = self.active
        if offset < active.base_offset:
            return False
        size = active.size_bytes
        if size <= RECENT_BYTES or offset in self._boundaries:
            return True
        recent = self._recent
        if recent is None or size - recent[0] > _RECENT_STEP_BYTES:
            active.ensure_indexes()
            recent = size, active.offset_index.offset_at(size - RECENT_BYTES)
            self._recent = recent
        return offset >= recent[1]

    def locate(
        self, offset: int, max_bytes: int, max_offset: int, log_end_offset: int
    ) -> SegmentSlice | None:
        """Return the byte range of the batches from `offset` on, within one segment.

        None if there is nothing below `max_offset`. Raises CorruptLog, OSError.
        """
        for at in range(self.index_of(offset), len(self._segments)):
            bounds = self._locate_in(at, offset, max_offset, log_end_offset)
            if bounds is not None:
                position, limit = bounds
                if position >= limit:
                    return None
                visible = limit - position
                return SegmentSlice(self._segments[at], position, min(max_bytes, visible), visible)
        return None

    def _locate_in(
        self, at: int, offset: int, max_offset: int, log_end_offset: int
    ) -> tuple[int, int] | None:
        """Return (first position, end) of the readable bytes in one segment; None: try the next."""
        segment = self._segments[at]
        active = at == len(self._segments) - 1
        position = self._boundaries.get(offset) if active else None
        if position is None:
            found = segment.find(offset)
            if found is None:
                return None
            position = found[1]
        if max_offset >= (log_end_offset if active else self._bases[at + 1]):
            return position, segment.size_bytes
        limit = self._boundaries.get(max_offset) if active else None
        if limit is None:
            found = segment.find(max_offset)
            limit = segment.size_bytes if found is None else found[1]
            if limit <= position and offset < max_offset:
                limit = segment.reach(position, max_offset)
        return position, limit

    # Aborted transactions --------------------------------------------------------------------

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [start, end), for a read_committed fetch."""
        found: list[AbortedTxn] = []
        closed, active = self._closed_with_aborts(), self.active
        at = max(0, bisect_right(closed, start_offset, key=_base_offset) - 1)
        for segment in (*closed[at:], active) if active.txn_index.count else closed[at:]:
            if segment.txn_index.collect(start_offset, end_offset, found):
                break
        return found

    def aborted_in(self, offset: int, size_bytes: int, max_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap a read of `size_bytes` from `offset` on.

        As in Kafka, the end of that read is the next index entry, or `max_offset`.
        """
        if not self._closed_with_aborts() and not self.active.txn_index.count:
            return []
        return self.aborted_transactions(offset, self._end_of_read(offset, size_bytes, max_offset))

    def _end_of_read(self, offset: int, size_bytes: int, max_offset: int) -> int:
        for at in range(self.index_of(offset), len(self._segments)):
            segment = self._segments[at]
            found = segment.find(offset)
            if found is not None:
                end = _offset_behind(segment, found[1] + size_bytes)
                if end is None and at + 1 < len(self._bases):
                    end = self._bases[at + 1]
                return max_offset if end is None else min(end, max_offset)
        return max_offset

    def _closed_with_aborts(self) -> list[Segment]:
        """Return the closed segments that have a transaction index. They change only with the list
        of segments."""
        if self._aborts is None:
            self._aborts = [one for one in self._segments[:-1] if one.txn_index.count]
        return self._aborts


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _offset_behind(segment: Segment, position: int) -> int | None:
    """Return an offset above all batches that begin before `position`, perhaps by some batches.

    None if no index entry shows one, or only a damaged one.
    """
    segment.ensure_indexes()
    entry = entry_from(segment.offset_index, position)
    if entry is None:
        return None
    offset, at = entry
    data = segment.log.pread(HEADER_BYTES, at)
    genuine = len(data) == HEADER_BYTES and parse_header(data).last_offset == offset
    return offset if genuine else None


def complete_first(
    where: SegmentSlice, data: bytes, min_one_batch: bool, pread: Callable[[int, int], bytes]
) -> bytes:
    """Return `data` with its first batch completed, or without it, if a limit truncated it."""
    if len(data) >= HEADER_BYTES and _batch_size(data) <= len(data):
        return data
    if not min_one_batch:
        return b""
    head = data if len(data) >= HEADER_BYTES else pread(HEADER_BYTES, where.position)
    if len(head) < HEADER_BYTES:
        return b""
    return pread(min(_batch_size(head), where.limit_bytes), where.position)


def _batch_size(head: bytes) -> int:
    return int.from_bytes(head[8:12], "big") + LENGTH_OVERHEAD_BYTES
