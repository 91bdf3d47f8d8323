"""Shell: Read access to a partition's log: its bounds, batches and epochs.

This module does not change the log; `storage.log.log` does. A read never walks more than one index
interval. Positions of recent batch boundaries are remembered, so the usual reads (a follower or
consumer at the end) are one pread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from protocol.batch.header import NO_TIMESTAMP
from protocol.ids import TopicId
from storage.files import Files
from storage.log import recovery, timestamps
from storage.log.config import LogConfig
from storage.log.directory import split_folder_path
from storage.log.epoch_file import EpochFile
from storage.log.errors import BelowLocalStart, CorruptLog, LogFailed, OffsetOutOfRange
from storage.log.indexes import AbortedTxn, CorruptIndex
from storage.log.local_start import LocalStart
from storage.log.segments import Segments, SegmentSlice, complete_first
from storage.log.timestamps import Search

T = TypeVar("T")


class ReadableLog:
    """The fields of a `Log`, and the queries on them and on the disk."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        loaded: recovery.LoadedLog,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic, self.partition = split_folder_path(directory)
        self.topic_id: TopicId | None = None
        self.config = config
        self.recovery_report = loaded.report
        self.segments = Segments(files, directory, loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = max(loaded.log_start_offset, loaded.segments[0].base_offset)
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = self.local_log_start_offset
        self.epoch_file = EpochFile(files, loaded.epochs)
        self.recovery_point = loaded.log_end_offset if loaded.report.clean else 0
        self.copied_to = 0
        """First offset without a finished copy in the remote store on this replica's lineage; set
        by the tiering. While the log is copied, local segments above it are not removed (S2)."""
        self.saved_log_start = 0
        """Lower bound of the log start in the checkpoint on the disk; set by the manager, which
        writes the checkpoint. A tiered log keeps its epochs from there on: after a crash it begins
        there again, and remote segments are found by their epoch."""
        self.was_tiered = config.remote_storage_enable
        """True if the log was tiered at any time since it was opened: it may be tiered again."""
        self.tiering_known = True
        """False while `config` only assumes that the log is tiered, as at a start."""
        self.bootstrapping = False
        """`begin_at` is running or has failed: no reader or writer may use or count on this log."""
        self.checkpointed_recovery_point = self.saved_recovery_point = 0
        """Upper and lower bound of the recovery point in the checkpoint on the disk. They differ
        while it is being written, and after a failed write. Set by the manager, which writes it."""
        self.snapshots = loaded.snapshots
        self._failure: BaseException | None = None
        self._cut_unflushed = loaded.report.truncated_bytes > 0
        self._cut_at = loaded.log_end_offset
        """The lowest log end after a truncation since the last flush, while `_cut_unflushed`."""
        self._truncations = 0
        self._local_start = LocalStart()
        self._closed = False

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    # Bounds ----------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def local_start_ms(self) -> int:
        """Return the timestamp of the first local batch (epoch ms); -1 if it has none, or does
        not exist. Raises LogFailed."""
        known, segments, start = self._local_start, self.segments, self.local_log_start_offset
        if known.holds(segments[0], start, self._truncations):
            return known.timestamp_ms
        if self._failure is not None or self._closed or not segments.size_bytes:
            return NO_TIMESTAMP
        return self._look(lambda: known.find(segments, start, self._truncations))

    @property
    def latest_epoch(self) -> int:
        """The highest leader epoch; -1 if unknown."""
        return self.epochs.latest_epoch

    @property
    def last_batch_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there never was one or it is not known.

        This is not the latest epoch, which may have begun here without a batch. If retention has
        removed all batches, it is the epoch of the last of them. It is not known in two cases:

        - The log was restarted at its leader's log start.
        - Kafka has emptied the log: its epoch file then has only the epoch in force at the end,
          which may have no batch.
        """
        return self.epochs.epoch_at(self.log_end_offset - 1)

    @property
    def lacks_remote_epochs(self) -> bool:
        """True if the epochs of the remote part are not known here: their file was lost.

        Without them the lineage is unknown. So nothing is copied, expired or read remotely until
        `restore_epochs` has been called with the remote store's epochs.
        """
        start = self.log_start_offset
        if start >= self.local_log_start_offset:
            return False
        return self.epochs.epoch_at(start) < 0

    @property
    def owes_log_start(self) -> bool:
        """True if a crash could lower the log start to records that no longer exist (S4).

        Segments are kept until the start is in the checkpoint (see `Log.retention`).
        """
        return self.was_tiered and self.saved_log_start < self.log_start_offset

    @property
    def lacks_producers(self) -> bool:
        """True if the producer state at the local log start is not known: no snapshot is that old.

        A follower then starts over with `begin_at`.
        """
        local = self.local_log_start_offset
        if self.log_start_offset >= local:
            return False
        offsets = self.snapshots.offsets
        return not offsets or offsets[0] > local

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def failure(self) -> BaseException | None:
        """The error that closed the log for appends; None while it is open."""
        return self._failure

    @property
    def last_stable_offset(self) -> int:
        """First offset that a read_committed consumer may not read."""
        unstable = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def durable_high_watermark(self) -> int:
        """High watermark for the checkpoint: not above what survives a power cut.

        A power cut may undo a truncation that was not flushed. The truncated records are then back
        in place of the later ones, and must not count as committed.
        """
        return (
            min(self.high_watermark, self._cut_at) if self._cut_unflushed else self.high_watermark
        )

    @property
    def cut_unflushed(self) -> bool:
        """True if a power cut may undo a truncation, until the next flush."""
        return self._cut_unflushed

    # Reading ---------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True
    ) -> bytes:
        """Read batches from the one that contains `offset` (it may begin before) up to
        `max_offset`.

        Args:
            max_bytes: limits the data, which may therefore end inside a batch.
            max_offset: no batch that contains this offset or a later one is returned.
            min_one_batch: return the first batch whole even if it is larger than `max_bytes`;
            otherwise such a read is empty.

        Raises:
            OffsetOutOfRange: the offset is not in the log.
            BelowLocalStart: only the remote store has the offset.
            LogFailed: the disk cannot be read.
        """
        where = self._locate(offset, max_bytes, max_offset)
        if where is None:
            return b""
        try:
            data = where.segment.log.pread(where.size_bytes, where.position)
            return complete_first(where, data, min_one_batch, where.segment.log.pread)
        except OSError as error:
            raise LogFailed(self.directory, error) from error

    async def read_cold(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True
    ) -> bytes:
        """Run `read` with the disk access in a worker thread, for data that is probably not
        cached."""
        while True:
            where = self._locate(offset, max_bytes, max_offset)
            if where is None:
                return b""
            generation = self.segments.generation
            try:
                file = where.segment.log
                data = await self.files.pread(file, where.size_bytes, where.position)
                data = complete_first(where, data, min_one_batch, file.pread)
            except OSError as error:
                if generation != self.segments.generation:
                    continue  # the segment was removed during the read
                raise LogFailed(self.directory, error) from error
            if generation == self.segments.generation:
                return data

    def cached_bytes(self, offset: int, max_bytes: int, most_bytes: int) -> int | None:
        """Return how many bytes a read of at most `max_bytes` would return from `offset` on.

        None if the read would probably wait for the disk, or return more than `most_bytes`. Raises
        the errors of `read`.
        """
        where = self._locate(offset, max_bytes, self.log_end_offset)
        if where is None:
            return 0
        size, position = where.size_bytes, where.position
        if size > most_bytes:
            return None
        cached = self._look(lambda: self.files.is_cached(where.segment.log, size, position))
        return size if cached else None

    def visible_bytes(self, offset: int, max_offset: int) -> int:
        """Return how many bytes a read from `offset` to `max_offset` could return without a limit.

        Raises the errors of `read`.
        """
        where = self._locate(offset, 0, max_offset)
        return 0 if where is None else where.limit_bytes

    def is_recent(self, offset: int) -> bool:
        """Return whether a read from `offset` on probably finds its data in the page cache."""
        return self.segments.is_recent(offset)

    def _locate(self, offset: int, max_bytes: int, max_offset: int) -> SegmentSlice | None:
        end = self.log_end_offset
        if offset < self.local_log_start_offset and offset >= self.log_start_offset:
            raise BelowLocalStart(offset, self.local_log_start_offset)
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        if offset >= max_offset or offset == end:
            return None
        return self._look(lambda: self.segments.locate(offset, max_bytes, max_offset, end))

    def search_time(self, timestamp_ms: int | None) -> Search:
        """Search step by step for the first record with this timestamp or a later one.

        None searches for the highest timestamp instead (ListOffsets -3, KIP-734). The steps raise
        LogFailed.
        """
        start = self.log_start_offset
        try:
            if timestamp_ms is None:
                return (yield from timestamps.highest(self.segments, start))
            return (yield from timestamps.first_at_or_after(self.segments, timestamp_ms, start))
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self.directory, error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch not above this one; (-1, -1) if
        undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch that wrote `offset`; -1 if unknown."""
        return self.epochs.epoch_at(offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [start, end), for a read_committed fetch."""
        return self._look(lambda: self.segments.aborted_transactions(start_offset, end_offset))

    def _look(self, action: Callable[[], T]) -> T:
        """Run an action that only reads files. Raises LogFailed, but the log stays open for
        appends."""
        try:
            return action()
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self.directory, error) from error
