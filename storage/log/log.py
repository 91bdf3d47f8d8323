"""Shell: The log of one partition: segments, epochs, producers, and the offsets that bound them.

    log start <= local log start <= high watermark <= log end,  recovery point <= log end

`log_start_offset` is the first offset that exists at all; below `local_log_start_offset` only the
remote store has the records. The partition sets the high watermark (`update_high_watermark`); the
log keeps it inside its bounds. Everything below the recovery point is known to be on the disk.

An append validates everything, writes once, then changes the state. A failed write or flush changes
nothing, but closes the log for appends until it is reopened (KAFKA-10778): the bytes on the disk
after the last good one are then unknown. No method waits, except a flush and `begin_at`: they
capture their input first and check the log's state again after each wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.batch.header import (
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    patch,
)
from protocol.errors import ApiError, ErrorCode
from protocol.ids import TopicId
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.marks import mark
from storage.files import File, Files
from storage.log import recovery
from storage.log.append import AppendInfo, end_markers, judge_fetched, patched, whole_batches
from storage.log.bootstrap import Beginning, marker_path
from storage.log.config import LogConfig
from storage.log.epoch_file import EpochWrite
from storage.log.errors import LogFailed, OffsetOutOfRange
from storage.log.indexes import AbortedTxn
from storage.log.producers import EndMarker, Origin, ProducerStates
from storage.log.readable_log import ReadableLog
from storage.log.retention import closes_last, expired
from storage.log.rolling import must_roll
from storage.log.segment import MAX_RELATIVE, Segment
from storage.log.topic_id_file import take_topic_id, write_topic_id

PRODUCER_ID_EXPIRATION_MS: Final = 24 * 3_600_000


@dataclass(slots=True, kw_only=True)
class LogHooks:
    """Callbacks through which a log notifies its owner, or lets the owner decide."""

    rolled: Callable[[Log], None] = lambda log: None
    failed: Callable[[Log, BaseException], None] = lambda log, error: None
    flushed: Callable[[float], None] = lambda took_ms: None
    truncated: Callable[[Log], None] = lambda log: None
    start_lowered: Callable[[Log], None] = lambda log: None
    """The log start was lowered: a checkpoint with the old, higher start would empty the log after
    a crash. The callback corrects the checkpoint before it returns; raises OSError."""
    start_owed: Callable[[Log], None] = lambda log: None
    """The log start should be checkpointed soon: tiering of the log was enabled or disabled."""
    log_start_moved: Callable[[Log], None] = lambda log: None
    discard: Callable[[Log, Sequence[str]], None] | None = None
    """Removes renamed files after file.delete.delay.ms; None removes them at once."""
    roll_jitter_ms: Callable[[int], int] = lambda limit_ms: 0
    """Returns a random number below the limit; called for each segment."""


class Log(ReadableLog):
    """One partition's log. Create it with `Log.open`."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        clock: Clock,
        loaded: recovery.LoadedLog,
        hooks: LogHooks,
    ) -> None:
        super().__init__(files, directory, config, loaded)
        self.hooks = hooks
        self._clock = clock
        self._metadata_file: File | None = None
        if len(loaded.epochs) and not loaded.report.clean:
            # a killed process may have left a rename that is not durable
            loaded.epochs.durable = -1
        self._behind_hole = loaded.behind_hole
        self._removals = self._durable_removals = 0
        self._last_flush_ms = clock.now_ms()
        self._jitter_ms = self._draw_jitter()

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        clock: Clock,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        topic_id: TopicId | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        hooks: LogHooks | None = None,
    ) -> Log:
        """Open the log in `directory`; create it if it does not exist.

        Args:
            directory: `<parent>/<topic>-<partition>`.
            recovery_point, log_start_offset: from the checkpoints.
            clean_shutdown: the last process closed this log.
            topic_id: written to partition.metadata if that is missing.

        Raises:
            CorruptLog: the files cannot be a log's, or have another topic id, or have rotted and
            the settings refuse that.
            OSError: the disk refused.
        """
        files.mkdirs(directory)
        request = recovery.LoadRequest(
            files=files,
            directory=directory,
            config=config,
            now_ms=clock.now_ms(),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean_shutdown,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        log = cls(files, directory, config, clock, recovery.load_log(request), hooks or LogHooks())
        log.saved_log_start = min(log_start_offset, log.log_start_offset)
        if not log.recovery_report.clean:
            # The checkpoint may be older than a truncation. Batches appended again below it may
            # then be in the page cache only, since the last segment was not rolled after that.
            log.recovery_point = min(recovery_point, log.segments.active.base_offset)
            if log.recovery_report.recovered_from is not None:
                # The killed process may have truncated the log and then appended: a power cut could
                # still restore the truncated batches (seed 600).
                log._cut_unflushed, log._cut_at = True, log.recovery_point
        log.checkpointed_recovery_point = log.saved_recovery_point = recovery_point
        log.topic_id, log._metadata_file = take_topic_id(
            files, directory, topic_id, clean=log.recovery_report.clean
        )
        if not log.recovery_report.clean and len(log.epochs) and log.epochs.dirty:
            # Before epochs are visible: the checkpointed high watermark may be above their start.
            log.epoch_file.write(directory)
        return log

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write partition.metadata. The next flush makes it durable together with the log."""
        self._metadata_file = write_topic_id(self.files, self.directory, topic_id)
        self.topic_id = topic_id

    # Updates by the owner -------------------------------------------------------------------

    def restore_epochs(self, entries: Sequence[tuple[int, int]]) -> bool:
        """Restore epochs of offsets below the local log start. Returns whether any were new."""
        changed = self.epochs.prepend(entries)
        if changed:
            self._forget_epochs()
        return changed

    def restore_producers(self, snapshot: bytes) -> bool:
        """Restore the producer state at the local log start if no snapshot of it is left.

        Returns whether that was needed. Raises CorruptSnapshot, LogFailed.
        """
        if self.snapshots.offsets or not self.lacks_producers:
            return False
        older = ProducerStates(self.producers.expiration_ms)
        older.load_snapshot(snapshot, self._clock.now_ms())
        self._guard(lambda: self.snapshots.take(self.local_log_start_offset, older))
        self.producers.put_before(older)
        return True

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, limited to [local log start, log end]. Returns the new value.

        Records that only the remote store has were committed before they were copied (S1).
        """
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            offset = max(self.local_log_start_offset, min(offset, self.log_end_offset))
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return offset

    # Appending -------------------------------------------------------------------------------

    def append_as_leader(
        self,
        buf: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        header: BatchHeader | None = None,
        log_append_time_ms: int = -1,
    ) -> AppendInfo:
        """Assign offsets and the epoch to validated batches and write them, all or none.

        Args:
            buf: whole batches; a writable buffer is patched in place, any other is not copied.
            header: the header of the only batch, if the caller has parsed it already.
            log_append_time_ms: returned in the result.

        Raises:
            ApiError: the errors of `ProducerStates.check`; RECORD_LIST_TOO_LARGE if the batches
            exceed segment.bytes.
            LogFailed: the disk refused, now or before.
            InvariantViolated: the epoch is lower than the log's.
        """
        if self._failure is not None:
            raise LogFailed(self.directory, self._failure)
        if leader_epoch < self.epochs.latest_epoch:
            raise InvariantViolated(
                f"{self.directory}: append in epoch {leader_epoch} after {self.epochs.latest_epoch}"
            )
        size = len(buf)
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit a segment of {self.config.segment_bytes}",
            )
        first_offset = offset = self.log_end_offset
        if header is not None and (
            header.producer_id < 0 or (origin is Origin.CLIENT and self.producers.continues(header))
        ):
            # Fast path: there is no sequence to check and no transaction marker.
            self._write_plain(buf, header, leader_epoch, size, now_ms)
            return AppendInfo(
                first_offset, self.log_end_offset - 1, header.max_timestamp,
                log_append_time_ms, self.log_start_offset,
            )  # fmt: skip
        headers = (header,) if header is not None else whole_batches(buf)
        duplicate = self.producers.check(headers, origin)
        if duplicate is not None:
            return AppendInfo(
                duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms,
                log_append_time_ms, self.log_start_offset, True,
            )  # fmt: skip
        for batch in headers:
            batch.base_offset = offset
            batch.leader_epoch = leader_epoch
            offset += batch.last_offset_delta + 1
        max_timestamp = self._write(headers, patched(buf, headers), size, now_ms)
        return AppendInfo(
            first_offset, offset - 1, max_timestamp, log_append_time_ms, self.log_start_offset
        )

    def check_fetched(self, buf: Buffer, *, max_epoch: int | None = None) -> list[BatchHeader]:
        """Return the headers that `append_as_follower` would write. Raises CorruptLog."""
        return judge_fetched(buf, max_epoch, self.log_end_offset, self.epochs.latest_epoch)

    def append_as_follower(self, buf: Buffer, *, max_epoch: int | None = None) -> AppendInfo | None:
        """Write batches as the leader sent them, with their offsets and epochs.

        A truncated last batch is left out. So are all batches from the first one with an epoch
        above `max_epoch` on: a newer leader's batches belong to a newer fetch. Returns None if
        there is no whole batch.

        Raises:
            CorruptLog: a wrong CRC, an offset below the log end, an epoch below the latest.
            LogFailed: the disk refused, now or before.
        """
        if self._failure is not None:
            raise LogFailed(self.directory, self._failure)
        headers = self.check_fetched(buf, max_epoch=max_epoch)
        if not headers:
            return None
        now_ms = self._clock.now_ms()
        view = memoryview(buf)
        first, start, size, max_timestamp = 0, 0, 0, -1
        for at, batch in enumerate(headers):
            full = size + batch.size_bytes > self.config.segment_bytes
            # The indexes of one segment cannot express a higher offset.
            far = batch.last_offset - self.log_end_offset > MAX_RELATIVE
            if size and (full or far):
                part = [view[start : start + size]]
                stamp = self._write(headers[first:at], part, size, now_ms)
                first, start, size = at, start + size, 0
                max_timestamp = max(max_timestamp, stamp)
            size += batch.size_bytes
        stamp = self._write(headers[first:], [view[start : start + size]], size, now_ms)
        return AppendInfo(
            headers[0].base_offset,
            headers[-1].last_offset,
            max(max_timestamp, stamp),
            -1,
            self.log_start_offset,
        )

    def _write_plain(
        self, buf: Buffer, batch: BatchHeader, leader_epoch: int, size: int, now_ms: int
    ) -> None:
        """Write one batch that a leader appends, after its producer was checked.

        The batch must not end a transaction. Otherwise as `_write`.
        """
        base_offset, max_timestamp = self.log_end_offset, batch.max_timestamp
        last_offset = base_offset + batch.last_offset_delta
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        try:
            segment = self._segment_for(base_offset, last_offset, size, max_timestamp, now_ms)
            if type(buf) is memoryview and not buf.readonly:
                patch(buf, base_offset, leader_epoch)
                position = segment.log.append(buf)
            else:
                position = segment.log.append_many(patched(buf, (batch,)))
        except OSError as error:
            self.fail(error)
            raise LogFailed(self.directory, error) from error
        segment.note(last_offset, position, size, max_timestamp)
        if leader_epoch > self.epochs.latest_epoch:
            self.epoch_file.begin(leader_epoch, base_offset)
        if batch.producer_id >= 0:
            self._apply_producer(segment, batch, None)
        self.log_end_offset = last_offset + 1
        self.segments.note_boundary(last_offset + 1, position + size)

    def _segment_for(
        self, base_offset: int, last_offset: int, size: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """Return the segment for the next batches, ready for the append. Raises OSError."""
        segment = self.segments.active
        if must_roll(
            segment, self.config, self._jitter_ms, size, max_timestamp, last_offset, now_ms
        ):
            # Roll at the log end: the leader's cleaner may have removed the offsets before the
            # first batch. A gap between segments would count as lost records after a crash.
            far = last_offset - self.log_end_offset > MAX_RELATIVE
            segment = self.roll(base_offset if far else None)
        segment.prepare()
        return segment

    def _write(
        self, headers: Sequence[BatchHeader], parts: Sequence[Buffer], size: int, now_ms: int
    ) -> int:
        """Write validated batches and replay them. Returns the highest timestamp."""
        max_timestamp = headers[0].max_timestamp
        if len(headers) > 1:
            max_timestamp = max([batch.max_timestamp for batch in headers])
        markers = end_markers(headers, parts)
        base_offset, last_offset = headers[0].base_offset, headers[-1].last_offset
        try:
            segment = self._segment_for(base_offset, last_offset, size, max_timestamp, now_ms)
            position = segment.log.append_many(parts)
        except OSError as error:
            self.fail(error)
            raise LogFailed(self.directory, error) from error
        for at, batch in enumerate(headers):
            batch_size = batch.batch_length + LENGTH_OVERHEAD_BYTES
            segment.note(
                batch.base_offset + batch.last_offset_delta,
                position,
                batch_size,
                batch.max_timestamp,
            )
            position += batch_size
            if batch.leader_epoch > self.epochs.latest_epoch:
                self.epoch_file.begin(batch.leader_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                self._apply_producer(segment, batch, markers.get(at) if markers else None)
        self.log_end_offset = last_offset + 1
        self.segments.note_boundary(last_offset + 1, position)
        return max_timestamp

    def _apply_producer(
        self, segment: Segment, batch: BatchHeader, marker: EndMarker | None
    ) -> None:
        completed = self.producers.apply(batch, batch.base_offset, marker)
        if completed is not None and completed.aborted:
            stable = self.producers.last_stable_offset_after(completed)
            try:
                segment.txn_index.append(AbortedTxn(*completed[:3], stable))
            except OSError as error:
                self.fail(error)  # the marker is in the log: recovery will write the entry

    def note_leader_epoch(self, epoch: int) -> None:
        """Begin `epoch` at the log end: this replica leads from now on."""
        if epoch > self.epochs.latest_epoch:
            self.epoch_file.begin(epoch, self.log_end_offset)

    def fail(self, error: BaseException) -> None:
        """Close the log for appends after a disk error, and notify the owner once."""
        if self._failure is None:
            self._failure = error
            self.hooks.failed(self, error)

    # Rolling ---------------------------------------------------------------------------------

    def _draw_jitter(self) -> int:
        limit = min(self.config.segment_jitter_ms, self.config.effective_segment_ms)
        return self.hooks.roll_jitter_ms(limit) if limit > 0 else 0

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at the log end, or at a higher
        `base_offset`.

        An empty segment that already begins there is kept. Raises OSError.
        """
        base = self.log_end_offset if base_offset is None else max(base_offset, self.log_end_offset)
        active = self.segments.active
        if active.base_offset == base and active.size_bytes == 0:
            return active
        active.seal()
        if self._cut_unflushed or self.checkpointed_recovery_point > self.recovery_point:
            # Recovery trusts closed segments below the checkpoint, which may be too high for a
            # while after a truncation. And truncated batches must not return below a new segment.
            self.flush_blocking()
        self._take_snapshot(base)
        segment = self.segments.begin(base, self.config, self._clock.now_ms())
        self._jitter_ms = self._draw_jitter()
        self.hooks.rolled(self)
        return segment

    def _guard(self, action: Callable[[], object]) -> None:
        """Run an action that changes files. If the disk refuses, the log fails: raises
        LogFailed."""
        try:
            action()
        except OSError as error:
            self.fail(error)
            raise LogFailed(self.directory, error) from error

    # Durability ------------------------------------------------------------------------------

    def flush_due(self, now_ms: int) -> bool:
        """Return whether flush.messages or flush.ms requires a flush now."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or now_ms - self._last_flush_ms >= self.config.flush_ms
        )

    async def flush(self) -> int:
        """Make all appended batches durable. Returns the offset up to which the log is durable.

        Concurrent calls share the work. Raises LogFailed; the log is then closed for appends.
        """
        target, truncations, removals = self.log_end_offset, self._truncations, self._removals
        if self._failure is not None:
            raise LogFailed(self.directory, self._failure)
        if target <= self.recovery_point and not (self.epochs.unsettled or self._cut_unflushed):
            return self.recovery_point
        if self._closed:
            return self.recovery_point
        try:
            taken = list(self.snapshots.unflushed)
            began_ms = self._clock.monotonic_ms()
            await self.files.flush(self._unflushed_files())
            self.hooks.flushed(self._clock.monotonic_ms() - began_ms)
            self._flushed(taken)
            if self.epochs.unsettled:
                await self.epoch_file.settle(self.directory, self.topic_id, lambda: self._closed)
            if removals > self._durable_removals and await self._settle_folder():
                # Only now: if a power cut undid a removal, a segment would reappear below the
                # recovery point.
                self._durable_removals = max(self._durable_removals, removals)
        except OSError as error:
            if self._closed:
                return self.recovery_point  # the log was deleted in the meantime
            self.fail(error)
            raise LogFailed(self.directory, error) from error
        if truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, target)
            self._cut_unflushed = False
        self._last_flush_ms = self._clock.now_ms()
        return self.recovery_point

    def flush_blocking(self) -> None:
        """Flush as `flush` does, blocking; for start and stop. Raises LogFailed."""
        target = self.log_end_offset
        self._guard(self._flush_files)
        self._guard(self.settle)
        self.recovery_point = max(self.recovery_point, target)
        self._cut_unflushed = False

    def _flush_files(self) -> None:
        for file in self._unflushed_files():
            self.files.fsync(file)
        self._flushed(list(self.snapshots.unflushed))

    def _unflushed_files(self) -> list[File]:
        files = self.segments.unflushed_files(self.recovery_point)
        files += self.snapshots.unflushed.values()
        if self._metadata_file is not None:
            files.append(self._metadata_file)
        return files

    def _flushed(self, snapshots: Sequence[int]) -> None:
        self.snapshots.flushed(snapshots)
        if self._metadata_file is not None:
            self._metadata_file.close()
            self._metadata_file = None

    def write_epochs(self) -> None:
        """Write leader-epoch-checkpoint durably if it is out of date. Raises LogFailed."""
        self._guard(lambda: self.epoch_file.write(self.directory))

    def epochs_to_write(self) -> EpochWrite | None:
        """Return the epoch list to write (see `EpochFile.to_write`); None if the log is closed."""
        return None if self._closed else self.epoch_file.to_write(self.directory, self.topic_id)

    def epochs_written(self, write: EpochWrite) -> None:
        """Finish an epoch write (see `EpochFile.written`). Raises OSError."""
        if not self._closed:
            self.epoch_file.written(write)

    def close(self, *, clean: bool = True) -> None:
        """Close the files. With `clean`, first write what a clean start needs. Raises LogFailed."""
        if self._closed:
            return
        self._closed = True
        self._guard(self.segments.abandon_swap)
        if clean and self._failure is None:
            self._guard(self._finish)
        self._flushed(list(self.snapshots.unflushed))
        for segment in self.segments:
            if clean and self._failure is None:
                segment.close()
            else:
                segment.discard_handles()

    def seal_for_close(self) -> list[File]:
        """Write out the state for a clean close. Returns the files that must then be flushed."""
        self._guard(self.segments.active.seal)
        self._guard(lambda: self._take_snapshot(self.log_end_offset))
        return self._unflushed_files()

    def _take_snapshot(self, offset: int) -> None:
        """Write a producer snapshot, unless the state lacks its beginning: the next start would
        mistake such a snapshot for a complete one."""
        if not self.lacks_producers:
            self.snapshots.take(offset, self.producers)

    @property
    def is_unsettled(self) -> bool:
        """True if a clean close must call `settle` first."""
        owed = self.epochs.unsettled or self._removals > self._durable_removals
        return self._failure is None and owed

    def settle(self) -> None:
        """Make epochs and segment removals durable.

        After a clean close, the next start does not look for removals that reached the disk out of
        order (P18). Runs in a worker: a failure does not fail the log. Raises OSError.
        """
        removals = self._removals
        self.epoch_file.write(self.directory)
        if removals > self._durable_removals:
            self.files.fsync_dir(self.directory)
            self._durable_removals = removals

    def _finish(self) -> None:
        self.segments.active.seal()
        self._take_snapshot(self.log_end_offset)
        self.flush_blocking()

    # Truncation and log start ----------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove `offset` and everything after it. Returns whether any batches were removed.

        A batch that begins before `offset` and contains it is removed entirely. Epochs and producer
        state follow; the high watermark is lowered to the new end if it was above.

        Below the local log start of a tiered log, the log start stays, and so do the epochs of the
        remote part. The producer state at that offset is then not known locally
        (`lacks_producers`). Raises LogFailed.
        """
        if offset >= self.log_end_offset:
            # An epoch that this replica began as leader, without a batch, is not history.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first_base_offset:
            self._begin_anew_at(offset, min(offset, self.log_start_offset))
            return True
        self._guard(lambda: self._truncate(offset))
        self.hooks.truncated(self)
        return True

    def _truncate(self, offset: int) -> None:
        self._truncations += 1
        end = self.segments.cut(offset)
        self._cut_at = min(self._cut_at, end) if self._cut_unflushed else end
        self._cut_unflushed = True
        if self.snapshots.remove_above(end):
            # Otherwise a crash could restore these snapshots next to batches that were written
            # later.
            self.files.fsync_dir(self.directory)
        self.log_end_offset = end
        self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)
        self.copied_to = min(self.copied_to, end)
        self.epochs.truncate_from_end(end)
        problems: list[str] = []
        recovery.load_producers(
            self.snapshots,
            self.producers,
            list(self.segments),
            end,
            self._clock.now_ms(),
            problems,
            log_start_offset=self.log_start_offset,
        )
        self.recovery_report.problems += problems
        self.producers.on_high_watermark(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the log and let it begin at `offset`. Raises LogFailed."""
        self._begin_anew_at(offset, offset)

    def _begin_anew_at(self, offset: int, log_start_offset: int) -> None:
        self._guard(lambda: self._start_at(offset, log_start_offset))
        self.hooks.truncated(self)

    def _start_at(self, offset: int, log_start_offset: int) -> None:
        lowered = log_start_offset < self.log_start_offset
        self._drop_all()
        self.files.fsync_dir(self.directory)
        self._begin_empty(offset, log_start_offset)
        self.files.fsync_dir(self.directory)  # the new segment's file name defines the log start
        if log_start_offset < offset:
            self.epochs.truncate_from_end(offset)
        else:
            self.epochs.clear()
        self.write_epochs()
        if lowered:
            self.hooks.start_lowered(self)

    def _drop_all(self) -> None:
        self._truncations += 1
        self.segments.drop_from(0)
        self.snapshots.remove_above(-1)
        self.producers.clear()

    def _begin_empty(self, offset: int, log_start_offset: int) -> None:
        self.segments.begin(offset, self.config, self._clock.now_ms())
        self.log_end_offset = self.recovery_point = offset
        self.log_start_offset = log_start_offset
        self.saved_log_start = min(self.saved_log_start, log_start_offset)
        self.local_log_start_offset = self.high_watermark = offset
        self.copied_to = min(self.copied_to, offset)

    async def begin_at(
        self,
        beginning: Beginning,
        save_log_start: Callable[[], Awaitable[None]],
        *,
        still_wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Empty the log and let it begin in the middle, with the remote store's state of the part
        before.

        Each step is durable before the next: marker, empty log, epochs, producer snapshot, log
        start, removal of the marker. A crash before the last step leaves an empty log (S5). If this
        replica is elected leader before the last step, it commits nothing: `epoch_file.limit` holds
        back the high watermark.

        Args:
            save_log_start: writes the log start checkpoint of this log's directory, durably.
            still_wanted: called once more before the log is emptied.

        Returns:
            False if the log was closed in the meantime, or `still_wanted` returned false.

        Raises:
            ValueError, CorruptSnapshot: `beginning` contradicts itself; nothing was changed.
            LogFailed: the disk refused, now or before.
        """
        beginning.check()
        if self._failure is not None:
            raise LogFailed(self.directory, self._failure)
        self.bootstrapping = True
        try:
            begun = await self._bootstrap(beginning, save_log_start, still_wanted)
        except OSError as error:
            if self._closed:
                return False
            self.fail(error)
            raise LogFailed(self.directory, error) from error
        self.bootstrapping = self._closed
        return begun

    async def _bootstrap(
        self,
        beginning: Beginning,
        save_log_start: Callable[[], Awaitable[None]],
        still_wanted: Callable[[], bool],
    ) -> bool:
        """Run the steps of `begin_at`. Raises OSError."""
        directory, files = self.directory, self.files
        files.touch(marker_path(directory))
        if not await self._settle_folder():
            return False
        wanted = still_wanted()
        if wanted:
            self._begin_with(beginning)
            if not await self._settle_folder():
                return False
            await self.epoch_file.settle(directory, self.topic_id, lambda: self._closed)
            if self._closed:
                return False
            await files.flush(list(self.snapshots.unflushed.values()))
            if self._closed:
                return False
            self.snapshots.flushed(list(self.snapshots.unflushed))
            await save_log_start()
            if self._closed:
                return False
        files.unlink(marker_path(directory))
        if not await self._settle_folder():
            return False
        self.epoch_file.let_go()
        return wanted

    def _begin_with(self, beginning: Beginning) -> None:
        """Set the state of [log start, local start) in an empty log. Later appends continue from
        it."""
        local = beginning.local_start_offset
        self._drop_all()
        self._begin_empty(local, beginning.log_start_offset)
        self.hooks.truncated(self)
        self.epochs.clear()
        for entry in beginning.epochs:
            self.epochs.assign(*entry)
        self.epochs.truncate_from_start(beginning.log_start_offset, local)
        self.epoch_file.hold(local)
        if beginning.producers is not None:
            self.producers.load_snapshot(beginning.producers, self._clock.now_ms())
            # the copied segment of this snapshot may end later
            self.producers.leave_out_from(local)
        self.snapshots.take(local, self.producers)

    async def _settle_folder(self) -> bool:
        """Make the folder's names durable. Returns False if the log was closed in the meantime."""
        if not self._closed:
            await self.files.flush_dir(self.directory)
        return not self._closed

    def configure(self, config: LogConfig) -> None:
        """Apply other settings.

        A log that is not tiered has no remote part: a lower log start in the checkpoint dates from
        when it was tiered, or is older than the segments.
        """
        was, self.config = self.config.remote_storage_enable, config
        # A checkpointed start would count again if the log is tiered after a crash.
        may_have_been = self.tiering_known or self.saved_log_start > 0
        self.was_tiered = config.remote_storage_enable or (self.was_tiered and may_have_been)
        self.tiering_known = True
        if not config.remote_storage_enable:
            self.leave_remote()
        elif not config.compacted and self._behind_hole is not None:
            self._finish_removals(self._behind_hole)
        self._behind_hole = None
        if was is not config.remote_storage_enable and self.owes_log_start:
            self.hooks.start_owed(self)

    def leave_remote(self) -> bool:
        """Drop the remote part: the log starts at its first local segment (KIP-950).

        Returns whether the log start moved.
        """
        if self.log_start_offset >= self.local_log_start_offset:
            return False
        self.copied_to = 0
        return self.advance_log_start(self.local_log_start_offset)

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start up to `offset`, after DeleteRecords or when the leader's start moved.

        Returns whether the start moved; the next `retention` removes segments. Raises
        OffsetOutOfRange if `offset` is above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self._forget_epochs()
        self.producers.on_log_start(offset)
        self.hooks.log_start_moved(self)
        return True

    def log_start_saved(self, offset: int) -> None:
        """Note that the checkpoint on the disk has `offset` as log start, or no line, which counts
        as 0."""
        self.saved_log_start = min(offset, self.log_start_offset)
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        """Drop the epochs of offsets that no crash can bring back."""
        start = self.log_start_offset
        if self.was_tiered:
            start = min(start, self.saved_log_start)
        self.epochs.truncate_from_start(start, self.log_end_offset)

    # Retention -------------------------------------------------------------------------------

    def retention(self, now_ms: int, limit: int | None = None) -> int:
        """Remove up to `limit` segments that are past retention, oldest first. Returns how many.

        If the only segment must be copied before it can be removed, it is rolled. A log that is
        tiered, or was and may be again, keeps all segments above the checkpointed log start until
        the checkpoint has the current one (`log_start_saved`). Raises LogFailed.
        """
        if self._failure is not None:
            return 0
        segments = list(self.segments)
        doomed = self._look(
            lambda: expired(
                segments,
                self.config,
                now_ms,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                copied_to=self.copied_to,
            )
        )
        if self.was_tiered:
            doomed = self._give_up(segments, doomed)
        if limit is not None:
            doomed = min(doomed, limit)
        if doomed:
            self._guard(lambda: self._delete_oldest(doomed))
        elif self._look(
            lambda: closes_last(
                segments,
                self.config,
                now_ms,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
            )
        ):
            self._guard(self.roll)
        return doomed

    def _give_up(self, segments: Sequence[Segment], doomed: int) -> int:
        """Advance a tiered log's start past segments that go without a copy.

        Returns how many of the `doomed` may be removed now. After a crash the log begins at the
        checkpointed start, not at a segment, so that start limits the removal (S4).
        """
        ends = [segment.base_offset for segment in segments[1:]] + [self.log_end_offset]
        kept_by = self.saved_log_start
        if not self.config.copies:
            if doomed:
                self.advance_log_start(ends[doomed - 1])
        elif not self.owes_log_start:
            kept_by = max(kept_by, self.copied_to)
        return bisect_right(ends, kept_by, 0, doomed)

    def _delete_oldest(self, count: int) -> None:
        if count == len(self.segments):
            self.roll()
        doomed = self.segments.take_oldest(count)
        first = self.segments.first_base_offset
        self.local_log_start_offset = max(self.local_log_start_offset, first)
        if not self.config.copies:
            self.advance_log_start(first)
        self._removals += 1
        for segment in doomed:
            self.snapshots.remove_oldest_at(segment.base_offset)
            self.discard(segment.rename_deleted())

    def _finish_removals(self, first: int) -> None:
        """Remove the segments before a hole that ends at `first`.

        Local retention had removed them, and a crash restored some of them but not the others. A
        read would silently skip the hole, although the remote store has the missing records (P18).
        """
        doomed = sum(segment.base_offset < first for segment in self.segments)
        if doomed and self._failure is None:
            mark("log.removals-finished")
            self._guard(lambda: self._delete_oldest(doomed))

    def discard(self, renamed: Sequence[str]) -> None:
        """Remove files that were renamed out of the log, through the owner's hook if there is
        one."""
        if self.hooks.discard is not None:
            self.hooks.discard(self, renamed)
        else:
            for path in renamed:
                self.files.unlink(path)
