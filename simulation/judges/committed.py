"""One partition as it was committed, and the batches of a log."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from protocol.batch.header import CorruptBatch, iter_batches
from protocol.batch.records import read_records
from simulation.judges.compacted import Keyed, KeyTable
from simulation.judges.producers import Sequences
from simulation.world.invariants import Violation, require
from storage.log.errors import LogFailed, OffsetOutOfRange
from storage.log.log import Log

READ_BYTES = 1 << 20
BatchAt = tuple[int, int, int, int]
"""Base offset, next offset, leader epoch, checksum of all its bytes."""
Passed = tuple[frozenset[int], frozenset[int], int]
"""ISR, maximal ISR and number of replicas in a state of a leader."""


@dataclass
class PartitionTruth:
    """One partition as it was committed.

    `had` is the highest end of each broker's log since it was last cut, and `had_before` that on
    disks that were removed. By leader epoch: the leader `elected` by the controllers, and the
    `leaders` that led. By partition epoch: the `members` of the ISR, and the number of `replicas`.
    """

    name: str
    end: int = 0
    batches: dict[int, BatchAt] = field(default_factory=dict)
    values: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    """Timestamp of each record, in milliseconds."""
    keys: KeyTable = field(default_factory=KeyTable)
    """Replaces `batches` and `values` where old records of a key may be removed."""
    elected: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    members: dict[int, frozenset[int]] = field(default_factory=dict)
    replicas: dict[int, int] = field(default_factory=dict)
    had: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """The log start of each broker."""
    highest_start: int = 0
    """The highest log start of any broker so far. After a crash, or under the next leader, the log
    may start lower."""
    had_before: dict[int, int] = field(default_factory=dict)
    sequences: Sequences = field(default_factory=Sequences)

    @property
    def newest_epoch(self) -> int:
        return max(self.leaders, default=-1)


def batches_of(log: Log, begin: int, end: int) -> Iterator[tuple[BatchAt, bytes]]:
    """Yield the batches of a log in [begin, end).

    Offsets may be missing in a compacted log, and the first batch may begin before (DeleteRecords).
    Raises: Violation (P18) for a gap, a decreasing epoch, or unreadable data.
    """
    gaps = log.config.compacted
    at, epoch = begin, -1
    where = f"{log.topic}-{log.partition}"
    while at < end:
        try:
            data = bytes(log.read(at, READ_BYTES, max_offset=end))
            batches = list(iter_batches(data))
        except (CorruptBatch, LogFailed, OffsetOutOfRange) as error:
            raise Violation(f"P18: {where} cannot be read at {at}: {error}") from error
        before = at
        for header, position in batches:
            whole = data[position : position + header.size_bytes]
            inside = at == begin and header.base_offset < at < header.next_offset
            if header.base_offset != at and not inside and not (gaps and header.next_offset > at):
                raise Violation(f"P18: {where}: {header.base_offset} follows {at}")
            if header.leader_epoch < epoch:
                raise Violation(f"P18: {where}: epochs go back at {at}")
            at, epoch = header.next_offset, header.leader_epoch
            yield (header.base_offset, at, epoch, zlib.crc32(whole)), whole
        if gaps and at == before:
            return  # the cleaner has removed the records there
        require(at > before, f"P18: {where}: no whole batch at {at}, the end is {end}")


def keyed_records(
    batches: Iterable[tuple[BatchAt, bytes]], begin: int, end: int
) -> dict[int, Keyed]:
    """Return the records in [begin, end) of the batches of a compacted log."""
    return {
        record.offset: Keyed(record.key or b"", record.value)
        for _, whole in batches
        for record in read_records(whole)
        if begin <= record.offset < end
    }
