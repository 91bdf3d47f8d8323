"""Shell: The log of one partition.

A log is composed of parts; callers reach a part directly, or the log for what needs several:

| part | |
|---|---|
| `bounds` | offsets of its start, end and high watermark; recovery point, checkpointed offsets |
| `segments` | files and positions of the batches |
| `reader` | batches, timestamps and aborted transactions inside the bounds |
| `appender` | appends as leader or follower, and new segments |
| `history` | leader epochs (`epochs`), and their file (`epoch_file`) |
| `producer_history` | producers at the log end (`producers`), and their `snapshots` |
| `durability` | flushes |
| `truncation` | truncation, and restarts of an emptied log |
| `trimming` | moves of the log start, and retention |
| `guard` | the failure that closed the log for appends |

The partition sets the high watermark (`update_high_watermark`); the log keeps it inside its bounds.
A failed write or flush changes nothing, but closes the log for appends until it is reopened
(KAFKA-10778). No method waits, except reads with `read_cold`, flushes and `begin_at`: they capture
their input first and check the log's state again after each wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import ReferenceType, ref

from protocol.ids import TopicId
from runtime.clock import Clock
from storage.files import File, Files
from storage.log import recovery
from storage.log.appender import LogAppender
from storage.log.bootstrap import Beginning
from storage.log.bounds import LogBounds
from storage.log.config import LogConfig
from storage.log.directory import split_folder_path
from storage.log.durability import LogDurability
from storage.log.epoch_history import EpochHistory
from storage.log.guard import LogGuard
from storage.log.owner import LogOwner
from storage.log.producer_history import ProducerHistory
from storage.log.reader import LogReader
from storage.log.segment import Segment
from storage.log.segments import Segments
from storage.log.topic_id_file import take_topic_id, write_topic_id
from storage.log.trimming import LogTrimming
from storage.log.truncation import LogTruncation

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

    def of(self, log: ReferenceType[Log]) -> LogOwner:
        """Return the hooks of one log for its parts.

        The reference is weak: a deleted log is freed with its last user, without a search for
        reference cycles.
        """

        def notify(hook: Callable[[Log], None]) -> Callable[[], None]:
            def call() -> None:
                known = log()
                if known is not None:
                    hook(known)

            return call

        failed, discard = self.failed, self.discard
        return LogOwner(
            rolled=notify(self.rolled),
            failed=lambda error: notify(lambda known: failed(known, error))(),
            flushed=self.flushed,
            truncated=notify(self.truncated),
            start_lowered=notify(self.start_lowered),
            start_owed=notify(self.start_owed),
            log_start_moved=notify(self.log_start_moved),
            discard=(
                None
                if discard is None
                else lambda paths: notify(lambda known: discard(known, paths))()
            ),
            roll_jitter_ms=self.roll_jitter_ms,
        )


class Log:
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
        self.files = files
        self.directory = directory
        self.topic, self.partition = split_folder_path(directory)
        self.topic_id: TopicId | None = None
        self.config = config
        self.recovery_report = loaded.report
        self._behind_hole = loaded.behind_hole
        if len(loaded.epochs) and not loaded.report.clean:
            # a killed process may have left a rename that is not durable
            loaded.epochs.durable = -1
        self._owner = owner = hooks.of(ref(self))
        self.guard = guard = LogGuard(directory, owner.failed)
        self.bounds = bounds = LogBounds(
            loaded.log_start_offset,
            max(loaded.log_start_offset, loaded.segments[0].base_offset),
            loaded.log_end_offset,
        )
        bounds.recovery_point = loaded.log_end_offset if loaded.report.clean else 0
        bounds.was_tiered = config.remote_storage_enable
        bounds.cut_unflushed = loaded.report.truncated_bytes > 0
        self.segments = segments = Segments(files, directory, loaded.segments)
        self.history = history = EpochHistory(files, loaded.epochs, bounds, guard)
        self.epochs, self.epoch_file = history.cache, history.file
        self.producer_history = producers = ProducerHistory(
            loaded.producers, loaded.snapshots, bounds, guard, clock, loaded.report
        )
        self.producers, self.snapshots = producers.states, producers.snapshots
        self.reader = LogReader(files, bounds, segments, guard)
        self.durability = durability = LogDurability(
            files, clock, bounds, segments, history, producers, guard, owner
        )
        self.appender = LogAppender(
            config, clock, bounds, segments, history, producers, durability, guard, owner
        )
        self.truncation = LogTruncation(
            files, config, clock, bounds, segments, history, producers, durability,
            guard, owner,
        )  # fmt: skip
        self.trimming = LogTrimming(
            files, config, bounds, segments, history, producers, durability,
            self.appender.roll, guard, owner,
        )  # fmt: skip
        # Each append would otherwise pass through one more call.
        self.append_as_leader = self.appender.as_leader
        self.append_as_follower = self.appender.as_follower

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
        bounds, report = log.bounds, log.recovery_report
        bounds.saved_log_start = min(log_start_offset, bounds.log_start_offset)
        if not report.clean:
            # The checkpoint may be older than a truncation. Batches appended again below it may
            # then be in the page cache only, since the last segment was not rolled after that.
            bounds.recovery_point = min(recovery_point, log.segments.active.base_offset)
            if report.recovered_from is not None:
                # The killed process may have truncated the log and then appended: a power cut could
                # still restore the truncated batches (seed 600).
                bounds.note_cut(bounds.recovery_point)
        bounds.checkpointed_recovery_point = bounds.saved_recovery_point = recovery_point
        found, file = take_topic_id(files, directory, topic_id, clean=report.clean)
        log.topic_id = log.history.topic_id = found
        log.durability.note_metadata_file(file)
        if not report.clean and len(log.epochs) and log.epochs.dirty:
            # Before epochs are visible: the checkpointed high watermark may be above their start.
            log.epoch_file.write(directory)
        return log

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write partition.metadata. The next flush makes it durable together with the log."""
        self.durability.note_metadata_file(write_topic_id(self.files, self.directory, topic_id))
        self.topic_id = self.history.topic_id = topic_id

    # Values of the parts ---------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.bounds.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        return self.bounds.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.bounds.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.bounds.high_watermark

    @property
    def recovery_point(self) -> int:
        return self.bounds.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """First offset that a read_committed consumer may not read.

        It is not below the log start: DeleteRecords may remove the first records of an open
        transaction.
        """
        bounds, unstable = self.bounds, self.producers.unstable.first_offset
        if unstable is None:
            return bounds.high_watermark
        return min(max(unstable, bounds.log_start_offset), bounds.high_watermark)

    @property
    def latest_epoch(self) -> int:
        """The highest leader epoch; -1 if unknown."""
        return self.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def closed(self) -> bool:
        return self.guard.closed

    @property
    def failure(self) -> BaseException | None:
        """The error that closed the log for appends; None while it is open."""
        return self.guard.failure

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
        return self.reader.read(offset, max_bytes, max_offset, min_one_batch)

    async def read_cold(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True
    ) -> bytes:
        """Run `read` with the disk access in a worker thread, for data that is probably not
        cached."""
        return await self.reader.read_cold(offset, max_bytes, max_offset, min_one_batch)

    def is_recent(self, offset: int) -> bool:
        """Return whether a read from `offset` on probably finds its data in the page cache."""
        return self.segments.is_recent(offset)

    # Changing --------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, limited to [local log start, log end]. Returns the new value."""
        offset = self.bounds.limit_high_watermark(offset)
        self.bounds.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return offset

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new segment; see `LogAppender.roll`. Raises OSError."""
        return self.appender.roll(base_offset)

    async def flush(self) -> int:
        """Make all appended batches durable. Returns the offset up to which the log is durable.

        Concurrent calls share the work. Raises LogFailed; the log is then closed for appends.
        """
        return await self.durability.flush()

    def truncate_to(self, offset: int) -> bool:
        """Remove `offset` and everything after it; see `LogTruncation.truncate_to`."""
        return self.truncation.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the log and let it begin at `offset`. Raises LogFailed."""
        self.truncation.start_at(offset, offset)

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
        return await self.truncation.begin_at(beginning, save_log_start, still_wanted)

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start up to `offset`; see `LogTrimming.advance_to`."""
        return self.trimming.advance_to(offset)

    def retention(self, now_ms: int, limit: int | None = None) -> int:
        """Remove up to `limit` segments that are past retention, oldest first. Returns how many.

        If the only segment must be copied before it can be removed, it is rolled. A log that is
        tiered, or was and may be again, keeps all segments above the checkpointed log start until
        the checkpoint has the current one (`LogTrimming.saved`). Raises LogFailed.
        """
        return self.trimming.retain(now_ms, limit)

    def configure(self, config: LogConfig) -> None:
        """Apply other settings.

        A log that is not tiered has no remote part: a lower log start in the checkpoint dates from
        when it was tiered, or is older than the segments.
        """
        bounds = self.bounds
        was, self.config = self.config.remote_storage_enable, config
        self.appender.config = self.truncation.config = self.trimming.config = config
        # A checkpointed start would count again if the log is tiered after a crash.
        may_have_been = bounds.tiering_known or bounds.saved_log_start > 0
        bounds.was_tiered = config.remote_storage_enable or (bounds.was_tiered and may_have_been)
        bounds.tiering_known = True
        if not config.remote_storage_enable:
            self.trimming.leave_remote()
        elif not config.compacted and self._behind_hole is not None:
            self.trimming.finish_removals(self._behind_hole)
        self._behind_hole = None
        if was is not config.remote_storage_enable and bounds.owes_log_start:
            self._owner.start_owed()

    # Closing ---------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Close the files. With `clean`, first write what a clean start needs. Raises LogFailed."""
        guard = self.guard
        if guard.closed:
            return
        guard.closed = True
        guard.run(self.segments.abandon_swap)
        if clean and guard.failure is None:
            guard.run(self._finish)
        self.durability.let_go()
        for segment in self.segments:
            if clean and guard.failure is None:
                segment.close()
            else:
                segment.discard_handles()

    def _finish(self) -> None:
        self.segments.active.seal()
        self.producer_history.take_snapshot(self.bounds.log_end_offset)
        self.durability.flush_blocking()

    def seal_for_close(self) -> list[File]:
        """Write out the state for a clean close. Returns the files that must then be flushed."""
        self.guard.run(self.segments.active.seal)
        self.guard.run(lambda: self.producer_history.take_snapshot(self.bounds.log_end_offset))
        return self.durability.unflushed_files()
