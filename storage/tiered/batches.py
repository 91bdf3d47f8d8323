"""Validation of record batches on their way to an object store and back.

A store may return other bytes than were put, and a disk other bytes than were written. A batch
contains its own length and checksum; the segment's metadata limit its offsets and leader epochs. A
batch that does not match is an error, never data (S1).
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
"""Bytes between marks: large enough that marks are few, small enough that few batches lie between
two."""
INDEX_ENTRIES_MAX: Final = 1 << 18
"""Limit of one index, which is in memory until it is put: as many entries as Kafka's defaults have
in 1 GiB."""


class CorruptSegment(Exception):
    """Bytes or objects that do not belong to the segment in whose place they are."""


class WrongTimes(CorruptSegment):
    """The highest timestamp in a segment's metadata is not that of its batches, which are
    intact."""


class Mark(NamedTuple):
    """A boundary between two batches."""

    position: int
    next_offset: int
    """The offset after the previous batch."""


class CheckedBatches(NamedTuple):
    """The whole batches at the beginning of an answer."""

    whole_bytes: int
    next_offset: int
    """The offset after them; the segment's start if there are no whole batches."""
    cut_bytes: int
    """The full size of the truncated batch; 0 if even its header is incomplete."""
    last_epoch: int
    """Leader epoch of the last whole batch."""
    marks: Sequence[Mark]


def check_batches(
    segment: RemoteSegment,
    data: Buffer,
    last_offset: int | None = None,
    *,
    visit: Callable[[BatchHeader, int], None] | None = None,
) -> CheckedBatches:
    """Check the batches in `data`, which begins at a batch of the segment; the last may be
    truncated.

    Args:
        last_offset: batches that end after it are left out: a reader must not see offsets that its
        own lineage does not share with the segment.
        visit: called with the header of each whole batch that is included, and its position in
        `data`.

    Raises:
        CorruptSegment: a batch is invalid, or does not belong to the segment.
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
    """Return the batches in `data`, which is from the replica's own log. Raises CorruptBatch."""
    whole, next_offset, epoch = 0, -1, NO_LEADER_EPOCH
    marks: list[Mark] = []
    for header, at in iter_batches(data):
        whole, next_offset, epoch = at + header.size_bytes, header.next_offset, header.leader_epoch
        if whole - (marks[-1].position if marks else 0) >= MARKED_BYTES:
            marks.append(Mark(whole, next_offset))
    return CheckedBatches(whole, next_offset, 0, epoch, marks)


class LogCheck:
    """Validation of a segment's log that is read from the disk in parts: all of it must be batches.

    `crc32c`, `size_bytes` and `indexes` cover all parts so far. `index_interval_bytes` is the
    topic's `index.interval.bytes`.
    """

    def __init__(self, segment: RemoteSegment, index_interval_bytes: int) -> None:
        self._segment = segment
        interval_bytes = max(index_interval_bytes, segment.size_bytes // INDEX_ENTRIES_MAX)
        self.indexes = CopiedIndexes(segment.start_offset, interval_bytes)
        self._cut = b""
        """The first bytes of a batch that the next parts complete."""
        self._missing_bytes = 0
        """Missing bytes of its header, or of all of it."""
        self.crc32c = 0
        self.size_bytes = 0

    def add(self, part: bytes) -> None:
        """Check the next part. Raises CorruptSegment.

        This takes long for many small batches. Only a truncated batch is copied, since the GIL
        blocks other threads during a copy.
        """
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
        """Check `data`; `behind_bytes` of the part come after it."""
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
        """Finish after the last part. Raises CorruptSegment, WrongTimes."""
        if self._cut:
            raise CorruptSegment(f"{self._segment}: its last batch is cut")
        said_ms, highest_ms = self._segment.max_timestamp_ms, self.indexes.highest_ms
        if said_ms != highest_ms:
            # The metadata were written before the batches were read, and retention would use this
            # value for as long as the copy lives.
            raise WrongTimes(f"{self._segment}: its highest time is {highest_ms}, not {said_ms}")
