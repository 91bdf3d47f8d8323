"""One round over one log: from closed segments to `.cleaned` files in the same folder.

`steps` only reads the log and writes new files, so it may run in another process while the log is
appended to and read. Every file is durable before `steps` reports it. The job describes the log at
one moment; if the log has changed, the cleaner discards the result.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from protocol.batch.header import BatchHeader, parse_header
from protocol.errors import ApiError, ProtocolError
from storage.files import Files
from storage.log.cleaning.key_offsets import KeyOffsets
from storage.log.cleaning.plan import grouped
from storage.log.cleaning.rewrite import LastBatch, Rewriter, RewriteStats, collect
from storage.log.cleaning.transactions import Transactions
from storage.log.config import MAX_SEGMENT_BYTES, LogConfig
from storage.log.errors import CorruptLog
from storage.log.indexes import AbortedTxn
from storage.log.scan import BatchScan
from storage.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment, file_name

WRITE_BYTES: Final = 1 << 20
STEP_BYTES: Final = 256 << 10
"""Bytes between two steps: a step takes a few milliseconds for usual records."""


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment as it was when the round began."""

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """Input of a round.

    Attributes:
        sources: the closed segments up to `end_offset`, from the log's first one on.
        first_dirty: first offset of the key map.
        end_offset: end of the last source.
        high_watermark: of the log; not below `end_offset`.
        aborted: the aborted transactions that overlap the sources.
        active: the last batches of the producers in the log's state.
    """

    directory: str
    config: LogConfig
    sources: Sequence[Source]
    first_dirty: int
    end_offset: int
    high_watermark: int
    now_ms: int
    aborted: Sequence[AbortedTxn]
    active: Mapping[int, LastBatch]
    map_bytes: int
    map_load_factor: float


@dataclass(frozen=True, slots=True)
class Worked:
    """Progress: bytes were read or written; the cleaner has nothing to do."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The files of one group are written: `produced` replace `replaced`, both base offsets."""

    replaced: Sequence[int]
    produced: Sequence[int]


@dataclass(slots=True)
class Finished:
    """The round is complete; everything below `end_offset` is clean."""

    end_offset: int
    map_utilization: float
    bytes_read: int = 0
    bytes_written: int = 0
    rewrite: RewriteStats = field(default_factory=RewriteStats)


UNREADABLE: Final = (ValueError, ProtocolError, ApiError)
"""Errors that unreadable records raise."""

Step: TypeAlias = Worked | Cleaned | Finished


def steps(files: Files, job: CleaningJob) -> Iterator[Step]:
    """Run the round, a step at a time.

    Raises:
        CorruptLog: batches or records cannot be read; the round is abandoned.
        OSError: the disk refused.
    """
    newest = KeyOffsets(job.map_bytes, job.map_load_factor)
    yield from _collect_keys(files, job, newest)
    end_offset = max(newest.latest_offset + 1, job.first_dirty)
    done = Finished(end_offset, newest.utilization)
    rewriter = Rewriter(
        newest=newest,
        transactions=Transactions(job.aborted),
        active=job.active,
        high_watermark=job.high_watermark,
        now_ms=job.now_ms,
        delete_retention_ms=job.config.delete_retention_ms,
        record_bytes_max=job.config.max_decompressed_message_bytes,
        stats=done.rewrite,
    )
    taken = [source for source in job.sources if source.base_offset < end_offset]
    groups = grouped(
        taken,
        _end_of(job, taken[-1]) if taken else end_offset,
        segment_bytes=job.config.segment_bytes,
        index_bytes=job.config.segment_index_bytes,
    )
    for group in groups:
        yield from _rewrite_group(files, job, group, rewriter, done)
    yield done


def _end_of(job: CleaningJob, source: Source) -> int:
    """Return the end of a source: the start of the next one."""
    later = [other.base_offset for other in job.sources if other.base_offset > source.base_offset]
    return min(later, default=job.end_offset)


# Reading -------------------------------------------------------------------------------------


class _Batches:
    """The batches of one source with their bytes. Raises CorruptLog for invalid bytes."""

    def __init__(self, files: Files, directory: str, source: Source) -> None:
        self.path = posixpath.join(directory, file_name(source.base_offset, LOG_SUFFIX))
        self._file = files.open(self.path)
        self._scan = BatchScan(
            self._file, 0, source.size_bytes, check_crc=True, next_offset=source.base_offset
        )

    def __iter__(self) -> Iterator[tuple[BatchHeader, bytes]]:
        try:
            for header, _ in self._scan:
                yield header, self._scan.batch(header)
            if self._scan.problem is not None:
                raise self.broken(self._scan.problem)
        finally:
            self._file.close()

    def broken(self, problem: object) -> CorruptLog:
        """Return the error to raise for the current batch."""
        return CorruptLog(f"{self.path} at {self._scan.position}: {problem}")


def _collect_keys(files: Files, job: CleaningJob, newest: KeyOffsets) -> Iterator[Worked]:
    """Fill the map from the first dirty offset on, until the sources end or the map is full."""
    first = job.first_dirty
    transactions = Transactions(txn for txn in job.aborted if txn.last_offset >= first)
    record_bytes_max = job.config.max_decompressed_message_bytes
    worked = 0
    for source in job.sources:
        end = _end_of(job, source)
        if end <= first:
            continue
        batches = _Batches(files, job.directory, source)
        for header, batch in batches:
            if newest.is_full:
                return
            try:
                collect(batch, header, transactions, newest, first, record_bytes_max)
            except UNREADABLE as error:
                raise batches.broken(error) from error
            if header.last_offset >= first:
                newest.reaches(header.last_offset)
            worked += len(batch)
            if worked >= STEP_BYTES:
                yield Worked(worked)
                worked = 0
        newest.reaches(end - 1)
    yield Worked(worked)


# Writing -------------------------------------------------------------------------------------


class _Output:
    """The `.cleaned` segments of one group; more than one only if the batches do not fit."""

    def __init__(self, files: Files, job: CleaningJob, base_offset: int) -> None:
        self._files = files
        self._job = job
        self._parts: list[bytes] = []
        self._headers: list[BatchHeader] = []
        self._pending_bytes = 0
        self._segment = self._begin(base_offset)
        self.produced = [base_offset]

    def _begin(self, base_offset: int) -> Segment:
        job = self._job
        return Segment.create(
            self._files, job.directory, base_offset, job.config, job.now_ms, CLEANED_SUFFIX
        )

    def add(self, batch: bytes) -> None:
        header = parse_header(batch)
        if not self._fits(header, len(batch)):
            self.finish()
            self._segment = self._begin(header.base_offset)
            self.produced.append(header.base_offset)
        self._parts.append(batch)
        self._headers.append(header)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= WRITE_BYTES:
            self.write()

    def _fits(self, header: BatchHeader, size_bytes: int) -> bool:
        held = self._segment.size_bytes + self._pending_bytes
        return self._segment.fits_relative(header.last_offset) and (
            held == 0 or held + size_bytes <= MAX_SEGMENT_BYTES
        )

    def write(self) -> None:
        """Write pending batches to the file."""
        if not self._parts:
            return
        position = self._segment.log.append_many(self._parts)
        for header in self._headers:
            size = header.size_bytes
            self._segment.note(header.last_offset, position, size, header.max_timestamp)
            position += size
        self._parts, self._headers, self._pending_bytes = [], [], 0

    def note_aborted(self, aborted: list[AbortedTxn]) -> None:
        """Add these entries to the transaction index, and clear the list."""
        for entry in aborted:
            self._segment.txn_index.append(entry)
        aborted.clear()

    def finish(self) -> None:
        """Write and flush all files of the segment."""
        self.write()
        self._segment.seal()
        for file in self._segment.open_files():
            self._files.fsync(file)
        self._segment.close()

    def abandon(self) -> None:
        """Close the current segment's files, which will be removed."""
        self._segment.discard_handles()


def _rewrite_group(
    files: Files, job: CleaningJob, group: Sequence[Source], rewriter: Rewriter, done: Finished
) -> Iterator[Step]:
    output = _Output(files, job, group[0].base_offset)
    worked = 0
    try:
        for source in group:
            batches = _Batches(files, job.directory, source)
            for header, batch in batches:
                try:
                    kept = rewriter.remains(batch, header)
                except UNREADABLE as error:
                    raise batches.broken(error) from error
                done.bytes_read += len(batch)
                worked += len(batch)
                if kept is not None:
                    done.bytes_written += len(kept)
                    worked += len(kept)
                    output.add(kept)
                if rewriter.transactions.kept_entries:
                    output.note_aborted(rewriter.transactions.kept_entries)
                if worked >= STEP_BYTES:
                    yield Worked(worked)
                    worked = 0
        output.finish()
    except (Exception, GeneratorExit):
        # On damage, a full disk or a stopped round: otherwise the files would stay open.
        output.abandon()
        raise
    yield Worked(worked)
    yield Cleaned([source.base_offset for source in group], output.produced)
