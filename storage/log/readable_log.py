"""Shell: A partition's log as its readers see it: its bounds, its batches, its epochs.

Nothing here changes the log: `storage.log.log` does.

Reading never walks more than one index interval: positions of recent batch boundaries are
remembered, so that the usual reads (a follower or consumer at the end) are one pread.
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
    """The fields of a `Log`, and what can be read off them and off the disk."""

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
        """First offset without a finished copy in the remote store, on this replica's lineage; told
        by whoever knows the store. Nothing local goes above it while the log is copied (S2)."""
        self.saved_log_start = 0
        """What the checkpoint on the disk says at least; told by the manager, which writes it. A
        tiered log keeps its epochs from there on: after a crash it begins there again, and what
        only the remote store has is found by its epoch."""
        self.was_tiered = config.remote_storage_enable
        """Since it was opened, at any time: it may be tiered again."""
        self.tiering_known = True
        """False while `config` only supposes that it is tiered, as at a start."""
        self.bootstrapping = False
        """`begin_at` is under way or has failed: nobody may read, append, or count on this log."""
        self.checkpointed_recovery_point = self.saved_recovery_point = 0
        """What the checkpoint on the disk says at most, and at least: while it is being written,
        and where that failed, either is possible. Set by the manager, which writes it."""
        self.snapshots = loaded.snapshots
        self._failure: BaseException | None = None
        self._cut_unflushed = loaded.report.truncated_bytes > 0
        self._cut_at = loaded.log_end_offset
        """The lowest end that a cut left since the last flush, while `_cut_unflushed`."""
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
        """Timestamp of the first batch that is here (epoch milliseconds); -1 if there is none, or
        it has no time. Raises LogFailed."""
        known, segments, start = self._local_start, self.segments, self.local_log_start_offset
        if known.holds(segments[0], start, self._truncations):
            return known.timestamp_ms
        if self._failure is not None or self._closed or not segments.size_bytes:
            return NO_TIMESTAMP
        return self._look(lambda: known.find(segments, start, self._truncations))

    @property
    def latest_epoch(self) -> int:
        """The highest leader epoch, -1 if none."""
        return self.epochs.latest_epoch

    @property
    def last_batch_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if there never was one or it is not known.

        Not the latest epoch: that one may have begun here without a batch. Where all batches are
        gone by retention, it is that of the last of them. It is not known in a log that was begun
        anew at its leader's start, and in one that Kafka has emptied: its file of epochs then
        has only the one in force at the end, which may have no batch.
        """
        return self.epochs.epoch_at(self.log_end_offset - 1)

    @property
    def lacks_remote_epochs(self) -> bool:
        """The epochs of what only the remote store holds are not known here: their file was lost.

        Without them no lineage can be told, so nothing is copied, expired or read remotely until
        `restore_epochs` has been called with what the store knows.
        """
        start = self.log_start_offset
        if start >= self.local_log_start_offset:
            return False
        return self.epochs.epoch_at(start) < 0

    @property
    def owes_log_start(self) -> bool:
        """After a crash it might begin lower than it does now, which nobody has (S4). Segments wait
        for its start to be on the disk (see `retention`)."""
        return self.was_tiered and self.saved_log_start < self.log_start_offset

    @property
    def lacks_producers(self) -> bool:
        """Producer state at the local log start is not known: no snapshot reaches back so far.

        A follower begins anew then, with `begin_at`.
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
        """Why the log takes no appends any more."""
        return self._failure

    @property
    def last_stable_offset(self) -> int:
        """First offset that read_committed may not pass."""
        unstable = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def durable_high_watermark(self) -> int:
        """What the checkpoint may tell: no more than what is there after a power cut.

        A power cut may undo a truncation that was not flushed. What was cut is then back in the
        place of what came after it, and must not be taken for committed.
        """
        return (
            min(self.high_watermark, self._cut_at) if self._cut_unflushed else self.high_watermark
        )

    @property
    def cut_unflushed(self) -> bool:
        """Whether a power cut may undo a truncation; the next flush ends that."""
        return self._cut_unflushed

    # Reading ---------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True
    ) -> bytes:
        """Batches from the one that holds `offset` (it may begin before) up to `max_offset`.

        Args:
            max_bytes: the data may end inside a batch because of it.
            max_offset: no batch that reaches this offset or a later one is returned.
            min_one_batch: return the first batch whole even if it is larger than `max_bytes`;
                otherwise such a read is empty.

        Raises:
            OffsetOutOfRange, BelowLocalStart, LogFailed (the disk cannot be read).
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
        """`read` with the disk access in a worker thread, for data that is probably not cached."""
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
                    continue  # the segment went while it was being read
                raise LogFailed(self.directory, error) from error
            if generation == self.segments.generation:
                return data

    def cached_bytes(self, offset: int, max_bytes: int, most_bytes: int) -> int | None:
        """How much a read of a limit would return from `offset` on; None where it would probably
        wait for the disk, or return more than `most_bytes`. Raises as `read` does."""
        where = self._locate(offset, max_bytes, self.log_end_offset)
        if where is None:
            return 0
        size, position = where.size_bytes, where.position
        if size > most_bytes:
            return None
        cached = self._look(lambda: self.files.is_cached(where.segment.log, size, position))
        return size if cached else None

    def visible_bytes(self, offset: int, max_offset: int) -> int:
        """How much a read from `offset` up to `max_offset` could return without a limit. Raises as
        `read` does."""
        where = self._locate(offset, 0, max_offset)
        return 0 if where is None else where.limit_bytes

    def is_recent(self, offset: int) -> bool:
        """Whether a read from here on probably finds its data in the page cache."""
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
        """Finds the first record with this timestamp or a later one, or, for None, with the highest
        timestamp (ListOffsets -3, KIP-734), step by step. Its steps raise LogFailed."""
        start = self.log_start_offset
        try:
            if timestamp_ms is None:
                return (yield from timestamps.highest(self.segments, start))
            return (yield from timestamps.first_at_or_after(self.segments, timestamp_ms, start))
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self.directory, error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above this one; (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, -1 if unknown."""
        return self.epochs.epoch_at(offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Aborted transactions that overlap [start, end): what a read_committed fetch lists."""
        return self._look(lambda: self.segments.aborted_transactions(start_offset, end_offset))

    def _look(self, action: Callable[[], T]) -> T:
        """Do something that only reads files; a failure is the reader's alone."""
        try:
            return action()
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self.directory, error) from error
