"""Record batches on their way to an object store and back, checked before anybody counts on them.

A store may answer with other bytes than were put there, a disk with others than were written. A
batch says of itself how long it is and what its checksum is; the segment's metadata say which
offsets and leader epochs it may have. Any that does not fit is an error, never data (S1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from protocol.batch.header import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    BatchHeader,
    CorruptBatch,
    iter_batches,
    iter_checked,
    parse_header,
)
from protocol.checksum import crc32c
from protocol.schema import Buffer
from storage.tiered.copied_indexes import CopiedIndexes
from storage.tiered.values import RemoteSegment

MARKED_BYTES: Final = 16 << 10
"""There is a mark behind so many bytes: few beside them, and few batches between two."""
INDEX_ENTRIES_MAX: Final = 1 << 18
"""Of one index, which is in memory until it is put: as many as Kafka's defaults have in 1 GiB."""


class CorruptSegment(Exception):
    """Bytes, or objects, that are not those of the segment whose they should be."""


class WrongTimes(CorruptSegment):
    """The highest timestamp that a segment's metadata tell is not that of its batches, which are
    whole."""


class Mark(NamedTuple):
    """A place between two batches."""

    position: int
    next_offset: int
    """The offset behind the batch before it."""


class CheckedBatches(NamedTuple):
    """The whole batches at the beginning of an answer."""

    whole_bytes: int
    next_offset: int
    """The offset behind them; the segment's start if there is none."""
    cut_bytes: int
    """The size of the batch that was cut, all of it; 0 where not even its header is there."""
    last_epoch: int
    """Of the last whole batch."""
    marks: Sequence[Mark]


def check_batches(
    segment: RemoteSegment,
    data: Buffer,
    last_offset: int | None = None,
    *,
    visit: Callable[[BatchHeader, int], None] | None = None,
) -> CheckedBatches:
    """Check the batches in `data`, which begins at a batch of the segment; the last may be cut.

    Args:
        last_offset: batches that end behind it are left out; what a reader's own lineage does not
            share with the segment must not be read.
        visit: sees each whole batch that is left in, and where in `data` it begins.

    Raises:
        CorruptSegment.
    """
    starts = [entry.start_offset for entry in segment.epochs]
    whole, next_offset, epoch = 0, segment.start_offset, NO_LEADER_EPOCH
    marks: list[Mark] = []
    marked = 0
    try:
        for header, at in iter_checked(data):
            if not next_offset <= header.base_offset <= header.last_offset <= segment.end_offset:
                found = f"{header.base_offset}..{header.last_offset}"
                raise CorruptSegment(f"{segment}: a batch of {found} where {next_offset} is next")
            known = bisect_right(starts, header.last_offset)
            if known and header.leader_epoch != segment.epochs[known - 1].epoch:
                raise CorruptSegment(f"{segment}: a batch of epoch {header.leader_epoch}")
            if last_offset is not None and header.last_offset > last_offset:
                return CheckedBatches(whole, next_offset, 0, epoch, marks)
            whole, next_offset = at + header.size_bytes, header.next_offset
            epoch = header.leader_epoch
            if visit is not None:
                visit(header, at)
            if whole - marked >= MARKED_BYTES:
                marks.append(Mark(whole, next_offset))
                marked = whole
    except CorruptBatch as error:
        raise CorruptSegment(f"{segment}: {error}") from None
    left = len(data) - whole
    cut = parse_header(data, whole).size_bytes if left >= HEADER_BYTES else 0
    return CheckedBatches(whole, next_offset, cut, epoch, marks)


def own_batches(data: Buffer) -> CheckedBatches:
    """The batches in `data`, which is of a replica's own log. Raises CorruptBatch."""
    whole, next_offset, epoch = 0, -1, NO_LEADER_EPOCH
    marks: list[Mark] = []
    for header, at in iter_batches(data):
        whole, next_offset, epoch = at + header.size_bytes, header.next_offset, header.leader_epoch
        if whole - (marks[-1].position if marks else 0) >= MARKED_BYTES:
            marks.append(Mark(whole, next_offset))
    return CheckedBatches(whole, next_offset, 0, epoch, marks)


class LogCheck:
    """A segment's log as it is read from the disk, part by part: all of it must be its batches.

    `crc32c`, `size_bytes` and `indexes` are those of all parts so far. `index_interval_bytes` is
    the topic's `index.interval.bytes`.
    """

    def __init__(self, segment: RemoteSegment, index_interval_bytes: int) -> None:
        self._segment = segment
        interval_bytes = max(index_interval_bytes, segment.size_bytes // INDEX_ENTRIES_MAX)
        self.indexes = CopiedIndexes(segment.start_offset, interval_bytes)
        self._cut = b""
        """What is known of a batch that the next parts end."""
        self._missing_bytes = 0
        """Of its header, or of all of it."""
        self.crc32c = 0
        self.size_bytes = 0

    def add(self, part: bytes) -> None:
        """Of many small batches this takes long. Only the batch that was cut is copied: nobody else
        runs while a part is. Raises CorruptSegment."""
        self.crc32c = crc32c(part, self.crc32c)
        self.size_bytes += len(part)
        rest = memoryview(part)
        while self._cut and rest:
            taken = min(self._missing_bytes, len(rest))
            self._cut += rest[:taken]
            rest = rest[taken:]
            self._check(self._cut, len(rest))
        if rest:
            self._check(rest, 0)

    def _check(self, data: Buffer, behind_bytes: int) -> None:
        """`behind_bytes` of this part come after `data`."""
        begin = self.size_bytes - behind_bytes - len(data)
        note = self.indexes.note
        checked = check_batches(
            self._segment, data, visit=lambda header, at: note(header, begin + at)
        )
        self._cut = bytes(data[checked.whole_bytes :])
        known = max(checked.cut_bytes, HEADER_BYTES)
        self._missing_bytes = known - len(self._cut)
        left = self._segment.size_bytes - self.size_bytes + behind_bytes + len(self._cut)
        if checked.cut_bytes > left:
            raise CorruptSegment(f"{self._segment}: a batch of {checked.cut_bytes} of {left} bytes")

    def end(self) -> None:
        """There are no more parts. Raises CorruptSegment, WrongTimes."""
        if self._cut:
            raise CorruptSegment(f"{self._segment}: its last batch is cut")
        said_ms, highest_ms = self._segment.max_timestamp_ms, self.indexes.highest_ms
        if said_ms != highest_ms:
            # Said before the batches were read, and gone by for as long as the copy lives.
            raise WrongTimes(f"{self._segment}: its highest time is {highest_ms}, not {said_ms}")
