"""Shell: All partition logs in the log directory of one node.

Start: `load` opens every folder, trusting it after a clean shutdown (which left a marker),
recovering it from its recovery point otherwise. Stop: `close` flushes and closes every log, writes
the checkpoints, and the marker last. The marker is removed before the first log is opened, so that
a crash in the middle of loading is a crash. A start that comes to nothing and ends in good order (a
log that cannot be opened, a taken port, a signal) gives the marker back, and so the next start
judges the last shutdown as this one did.

Everything periodic is a chore that looks at the clock itself. Whoever owns the manager calls each
of `chores` about every second, from a task of its own: a slow disk that keeps one of them busy for
minutes (the removal of a big topic, a flush of thousands of logs) must not hold up the others.
Deletion is in two parts: a rename on the loop, which takes the name out of the way for good, and
the removal in workers after `file.delete.delay.ms`.
"""

from __future__ import annotations

import asyncio
import heapq
import posixpath
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from protocol.ids import TopicId, random_uuid
from runtime.clock import Clock
from runtime.config import NodeConfig, keys_log, keys_replication
from runtime.metrics import Family
from runtime.recent_times import RecentTimes
from runtime.slices import Slices, in_slices
from storage.files import File, Files
from storage.log import directory as folders
from storage.log.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    NO_BROKER_EPOCH,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    TopicPartition,
    decode_clean_shutdown,
    encode_clean_shutdown,
)
from storage.log.config import LogConfig
from storage.log.epoch_file import TOGETHER, write_all
from storage.log.errors import BadLogDirectory, LogFailed
from storage.log.log import PRODUCER_ID_EXPIRATION_MS, Log, LogHooks
from storage.log.offset_checkpoint import OffsetCheckpoint

CLOSING_WORKERS: Final = 8
REMOVING_WORKERS: Final = 2
"""Few enough that cold reads and checkpoints find a worker while a big topic goes."""
REMOVED_PER_STEP: Final = 32
"""Segments: four renames each."""
LOOKED_AT_ONCE: Final = 64
"""Logs, where a look at one takes a microsecond."""
FLUSHED_AT_ONCE: Final = 64
"""Logs that share the writes of the file system (see `storage.files.real`)."""

FLUSH_CHECK_MS: Final = 1_000
"""How often it is looked for logs to flush, unless log.flush.scheduler.interval.ms is given. Its
default says never, and then flush.ms of a topic would count for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """The node's settings for its logs; field names are Kafka's keys where there is one."""

    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = FLUSH_CHECK_MS
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    producer_id_expiration_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, node: NodeConfig) -> LogManagerSettings:
        flush = keys_log.LOG_FLUSH_SCHEDULER_INTERVAL_MS
        return cls(
            flush_offset_checkpoint_interval_ms=node[
                keys_log.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS
            ],
            flush_start_offset_checkpoint_interval_ms=node[
                keys_log.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS
            ],
            high_watermark_checkpoint_interval_ms=node[
                keys_replication.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS
            ],
            retention_check_interval_ms=node[keys_log.LOG_RETENTION_CHECK_INTERVAL_MS],
            flush_scheduler_interval_ms=node[flush] if node.is_set(flush) else FLUSH_CHECK_MS,
            producer_id_expiration_ms=node[keys_log.PRODUCER_ID_EXPIRATION_MS],
            producer_id_expiration_check_interval_ms=node[
                keys_log.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS
            ],
        )


@dataclass(slots=True)
class LoadReport:
    """What the start found; for a log line, not for decisions."""

    clean: bool = False
    loaded: int = 0
    recovered: int = 0
    problems: list[str] = field(default_factory=list)


class LogWatcher(Protocol):
    """Somebody who works on logs for longer than a moment, and must hear what happens to them."""

    def holds(self, log: Log) -> bool:
        """Whether its oldest segments must stay for now."""
        ...

    def truncated(self, log: Log) -> None:
        """Its end has been cut."""
        ...

    def removed(self, log: Log) -> None:
        """It is about to be closed and its folder renamed."""
        ...


def is_unidentified(log: Log) -> bool:
    """Whether it is not empty, and its partition.metadata was lost: a power cut may keep batches
    that were never flushed, and not that file. It may be of a deleted namesake."""
    return log.topic_id is None and log.log_end_offset > 0


class LogManager:
    """The logs of one log directory.

    Args:
        directory: exists, is locked and checked (`storage.log.directory`).
        config_for: the effective settings of a topic by name; asked while loading.
        rng: for the names of deleted folders and for roll jitter.
        on_failure: told of the first disk error of each log.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        clock: Clock,
        rng: random.Random,
        config_for: Callable[[str], LogConfig],
        settings: LogManagerSettings | None = None,
        on_failure: Callable[[Log, BaseException], None] = lambda log, error: None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.settings = settings or LogManagerSettings()
        self.logs: dict[TopicPartition, Log] = {}
        self.strays: list[str] = []
        """Folders that were set aside as not belonging to this broker."""
        self.report = LoadReport()
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Broker epoch at the last clean shutdown, -1 after an unclean one."""
        self._clock = clock
        self._rng = rng
        self._config_for = config_for
        self._on_failure = on_failure
        self._flush_times = RecentTimes()
        self._hooks = LogHooks(
            rolled=self._note_rolled,
            failed=self._failed,
            flushed=self._flush_times.add,
            truncated=self._truncated,
            start_lowered=self._start_lowered,
            start_owed=self._start_owed,
            log_start_moved=lambda log: self.log_start_moved(log),
            discard=self._discard,
            roll_jitter_ms=lambda limit_ms: rng.randrange(limit_ms),
        )
        self._to_flush: dict[Log, None] = {}
        self._discarded: list[tuple[float, int, str]] = []
        self._discard_count = 0
        self._epochs_due = True
        self._renamed = False
        """Whether a folder has a new name since the directory was last flushed."""
        self._recovery_points_due = False
        self._log_starts_due = False
        self._checkpoints: dict[str, OffsetCheckpoint] = {}
        self._saving_log_starts = asyncio.Lock()
        self._log_starts_asked = self._log_starts_answered = 0
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._due_ms: dict[str, float] = {}
        self._closed = False
        self.loading = False
        """Whether `load` has begun and is not over: some logs may be open, others are not."""
        self._marker_taken = False
        self.watcher: LogWatcher | None = None
        self.trimmed: Callable[[Log], None] = lambda log: None
        """Told of each log that has lost segments, to retention or to cleaning."""
        self.log_start_moved: Callable[[Log], None] = lambda log: None
        """Told of each log that begins later now."""

    # Start -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Open every log. Raises BadLogDirectory, CorruptLog, OSError."""
        for _ in self.load_steps():
            pass

    def load_steps(self) -> Iterator[Log]:
        """`load`, yielding after each log so that the caller can let others run."""
        names = [
            name
            for name in self.files.listdir(self.directory)
            if self.files.isdir(posixpath.join(self.directory, name))
        ]
        live = self._sort_out(names)
        self.loading = True
        self.report.clean = self._take_clean_marker()
        recovery_points = self.read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        log_starts = self.read_checkpoint(LOG_START_CHECKPOINT)
        self._high_watermarks = self.read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        for name, key in live:
            log = Log.open(
                self.files,
                posixpath.join(self.directory, name),
                self._config_for(key[0]),
                self._clock,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=log_starts.get(key, 0),
                clean_shutdown=self.report.clean,
                producer_id_expiration_ms=self.settings.producer_id_expiration_ms,
                hooks=self._hooks,
            )
            log.update_high_watermark(self._high_watermarks.get(key, 0))
            log.tiering_known = False
            self.logs[key] = log
            self._note_loaded(log)
            yield log
        self.loading = False

    def _note_loaded(self, log: Log) -> None:
        self.report.loaded += 1
        if log.cut_unflushed:
            self._to_flush[log] = None
        recovered = not log.recovery_report.clean
        if recovered:
            self.report.recovered += 1
        if recovered or is_unidentified(log):
            # It was closed in good order and is not as it was then: it may lack what others count
            # on, so this broker has not stopped cleanly (P11).
            self.previous_broker_epoch = NO_BROKER_EPOCH
        self.report.problems += [
            f"{log.topic}-{log.partition}: {problem}" for problem in log.recovery_report.problems
        ]

    def _sort_out(self, names: Sequence[str]) -> list[tuple[str, TopicPartition]]:
        """The folders of live logs; the others are removed, set aside, or refused."""
        live = []
        for name in names:
            if name == folders.METADATA_DIRECTORY or name == "remote-log-index-cache":
                continue
            try:
                folder = folders.parse_folder(name)
            except ValueError as error:
                raise BadLogDirectory(
                    f"{self.directory} holds a folder that is no partition's: {error}. "
                    "Only Kafka data may be in a log directory."
                ) from None
            path = posixpath.join(self.directory, name)
            if folder.suffix == folders.DELETE_SUFFIX:
                self._discard_path(path, 0)
            elif folder.suffix == folders.STRAY_SUFFIX:
                self.strays.append(path)
            elif folder.suffix == folders.FUTURE_SUFFIX:
                self.report.problems.append(f"{name}: moving between directories is not supported")
            else:
                live.append((name, (folder.topic, folder.partition)))
        return live

    def _take_clean_marker(self) -> bool:
        path = posixpath.join(self.directory, CLEAN_SHUTDOWN)
        try:
            self.previous_broker_epoch = decode_clean_shutdown(self.files.read(path))
        except FileNotFoundError:
            return False
        self._marker_taken = True
        self.files.unlink(path)
        self.files.fsync_dir(self.directory)
        return True

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """An offset checkpoint of this directory; empty if there is none that can be read."""
        try:
            return self._checkpoint(name).read()
        except CorruptCheckpoint as error:
            # Without it recovery reads more, and high watermarks begin at the log start.
            self.report.problems.append(f"{name}: {error}")
            return {}

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        found = self._checkpoints.get(name)
        if found is None:
            found = self._checkpoints[name] = OffsetCheckpoint(self.files, self.directory, name)
        return found

    # Logs ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.logs)

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: TopicId | bytes, config: LogConfig
    ) -> Log:
        """The partition's log, made if there is none.

        A log of another topic id is that of a deleted namesake and makes room; one that may be is
        set aside. An empty one without an id was made just before a crash.
        Raises ValueError for an illegal name, CorruptLog, OSError.
        """
        key = (topic, partition)
        wanted = TopicId(bytes(topic_id))
        log = self.logs.get(key)
        if log is not None and log.topic_id is not None and log.topic_id != wanted:
            self.delete(topic, partition)
            log = None
        elif log is not None and is_unidentified(log):
            self.set_aside(topic, partition)
            log = None
        if log is not None:
            log.configure(config)
            if log.topic_id is None:
                log.assign_topic_id(wanted)
            return log
        path = posixpath.join(self.directory, folders.folder_name(topic, partition))
        for checkpoint in self._checkpoints.values():
            checkpoint.forget(key, self.logs)
        log = Log.open(
            self.files,
            path,
            config,
            self._clock,
            topic_id=wanted,
            producer_id_expiration_ms=self.settings.producer_id_expiration_ms,
            hooks=self._hooks,
        )
        self.logs[key] = log
        return log

    def delete(self, topic: str, partition: int) -> bool:
        """Take a log out: renamed at once, removed later. Returns whether there was one.

        The rename is durable after the next `remove_discarded` or `close`. A power cut before that
        brings the folder back under its own name, and the next start sets it aside.
        """
        log = self._rename_away(topic, partition, folders.DELETE_SUFFIX)
        if log is None:
            return False
        self._discard_path(log.directory, log.config.file_delete_delay_ms)
        return True

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename a log that does not belong to this broker with `-stray`; returns its new path."""
        log = self._rename_away(topic, partition, folders.STRAY_SUFFIX)
        if log is None:
            return None
        self.strays.append(log.directory)
        return log.directory

    def remove_stray(self, path: str) -> None:
        """Remove a folder that was set aside: nobody needs it any more."""
        self.strays.remove(path)
        self._discard_path(path, 0)

    def find_strays(self, belongs: Callable[[str, int, TopicId | None], bool]) -> list[Log]:
        """Logs for which `belongs(topic, partition, topic id)` is false, and those of which nobody
        can tell: as in Kafka, they are no topic's."""
        return [
            log
            for (topic, partition), log in self.logs.items()
            if is_unidentified(log) or not belongs(topic, partition, log.topic_id)
        ]

    def _rename_away(self, topic: str, partition: int, suffix: str) -> Log | None:
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return None
        self._to_flush.pop(log, None)
        if self.watcher is not None:
            self.watcher.removed(log)
        log.close(clean=False)
        name = folders.renamed_folder(topic, partition, random_uuid(self._rng), suffix)
        target = posixpath.join(self.directory, name)
        self.files.rename(log.directory, target)
        self._renamed = True
        log.directory = target
        return log

    # What logs report ------------------------------------------------------------------------

    def _note_rolled(self, log: Log) -> None:
        self._to_flush[log] = None

    def _failed(self, log: Log, error: BaseException) -> None:
        self._on_failure(log, error)

    def _truncated(self, log: Log) -> None:
        self._recovery_points_due = True
        self._to_flush[log] = None
        if self.watcher is not None:
            self.watcher.truncated(log)

    def _start_lowered(self, log: Log) -> None:
        key = (log.topic, log.partition)
        start = log.log_start_offset if _has_start_line(log) else None
        self._checkpoint(LOG_START_CHECKPOINT).correct(key, start, self.logs)

    def _start_owed(self, log: Log) -> None:
        self._log_starts_due = True

    def _discard(self, log: Log, paths: Sequence[str]) -> None:
        for path in paths:
            self._discard_path(path, log.config.file_delete_delay_ms)
        self.trimmed(log)

    def _discard_path(self, path: str, delay_ms: int) -> None:
        self._discard_count += 1
        due_ms = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._discarded, (due_ms, self._discard_count, path))

    def collect(self) -> Iterator[Family]:
        """For the metrics registry."""
        yield self._flush_times.family(
            "kafka_log_logflushstats_logflushrateandtimems",
            "Time to flush a log to the disk, ms; not at start and stop",
        )

    # Periodic work ---------------------------------------------------------------------------

    def reconfigure(self, settings: LogManagerSettings) -> None:
        """Go on with other settings, which also hold for the logs that are open."""
        self.settings = settings
        for log in self.logs.values():
            log.producers.expiration_ms = settings.producer_id_expiration_ms

    def chores(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """What is to be called about every second, by name; each does what is due by then."""
        return {
            "flush": self.flush_scheduled,
            "checkpoints": self.checkpoint_scheduled,
            "leader epochs": self.save_epochs_scheduled,
            "retention": self.tidy_scheduled,
            "removal": self.remove_discarded,
        }

    async def flush_scheduled(self) -> None:
        if self._is_due("flush", self.settings.flush_scheduler_interval_ms):
            await self.flush_due()

    async def checkpoint_scheduled(self) -> None:
        settings = self.settings
        if self._recovery_points_due or self._is_due(
            "recovery points", settings.flush_offset_checkpoint_interval_ms
        ):
            await self.checkpoint_recovery_points()
        if self._log_starts_due or self._is_due(
            "log starts", settings.flush_start_offset_checkpoint_interval_ms
        ):
            await self.checkpoint_log_starts()
        if self._is_due("high watermarks", settings.high_watermark_checkpoint_interval_ms):
            await self.checkpoint_high_watermarks()

    async def save_epochs_scheduled(self) -> None:
        """Files of epochs for which nobody waits: of idle partitions, and what recovery found."""
        if self._epochs_due or self._is_due(
            "leader epochs", self.settings.flush_offset_checkpoint_interval_ms
        ):
            self._epochs_due = False
            await self.save_epochs()

    async def save_epochs(self) -> None:
        """Bring every leader-epoch-checkpoint up to date, some at a time."""
        dirty = [log for log in self.logs.values() if log.epochs.dirty and log.failure is None]
        for at in range(0, len(dirty), TOGETHER):
            writes = {
                log: write
                for log in dirty[at : at + TOGETHER]
                if (write := log.epochs_to_write()) is not None
            }
            errors = await self.files.run(write_all, self.files, list(writes.values()))
            for (log, write), error in zip(writes.items(), errors, strict=True):
                try:
                    if error is not None:
                        raise error
                    log.epochs_written(write)
                except OSError as failure:
                    if not log.closed:
                        log.fail(failure)

    async def tidy_scheduled(self) -> None:
        """Retention, and producers that have been silent for too long."""
        settings = self.settings
        if self._is_due("producers", settings.producer_id_expiration_check_interval_ms):
            await in_slices(self.expiry_steps(), self._clock)
        if self._is_due("retention", settings.retention_check_interval_ms):
            await in_slices(self.retention_steps(list(self.logs)), self._clock)
            owing = [key for key, log in self.logs.items() if log.owes_log_start]
            if owing:
                await self.checkpoint_log_starts()
                await in_slices(self.retention_steps(owing), self._clock)

    def _is_due(self, what: str, interval_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._due_ms.get(what)
        if due_ms is None or now_ms >= due_ms:
            self._due_ms[what] = now_ms + interval_ms
        return due_ms is not None and now_ms >= due_ms

    def retention_steps(self, keys: Sequence[TopicPartition]) -> Iterator[int]:
        """Apply retention, one log or some of its segments per step; yields how many went."""
        for key in keys:
            while removed := self._retain(key):
                yield removed
            yield 0

    def _retain(self, key: TopicPartition) -> int:
        log = self.logs.get(key)
        if log is None or (self.watcher is not None and self.watcher.holds(log)):
            return 0
        try:
            return log.retention(self._clock.now_ms(), REMOVED_PER_STEP)
        except LogFailed:
            return 0  # the owner has heard of it through on_failure

    def expiry_steps(self) -> Iterator[int]:
        """Forget idle producers, some per step; yields how many."""
        for log in list(self.logs.values()):
            yield from log.producers.expiry_steps(self._clock.now_ms())

    async def flush_due(self) -> None:
        """Flush logs that rolled or were cut since the last call, or by a process that was killed,
        and those that flush.ms asks for."""
        now_ms = self._clock.now_ms()
        wanted, self._to_flush = self._to_flush, {}
        slices = Slices(self._clock)
        for at, log in enumerate(list(self.logs.values())):
            if log.flush_due(now_ms):
                wanted[log] = None
            if at % LOOKED_AT_ONCE == 0:
                await slices.breathe()
        logs = list(wanted)
        for at in range(0, len(logs), FLUSHED_AT_ONCE):
            await asyncio.gather(*map(self._flush, logs[at : at + FLUSHED_AT_ONCE]))

    async def _flush(self, log: Log) -> None:
        try:
            await log.flush()
        except LogFailed:
            return  # reported through on_failure

    async def remove_discarded(self, *, at_once: bool = False) -> int:
        """Remove renamed files and folders whose delay is over; returns how many. Raises OSError.

        A few at a time, and nothing before the renames are durable: else a power cut could bring
        back a folder under its own name with half of its files.
        """
        removed = 0
        while (doomed := self._take_discarded(at_once)) or self._renamed:
            if self._renamed:
                self._renamed = False
                await self.files.run(self.files.fsync_dir, self.directory)
            await asyncio.gather(*(self.files.run(self._remove, path) for path in doomed))
            removed += len(doomed)
        return removed

    def _take_discarded(self, at_once: bool) -> list[str]:
        now_ms = self._clock.monotonic_ms()
        taken: list[str] = []
        while self._discarded and len(taken) < REMOVING_WORKERS:
            if not at_once and self._discarded[0][0] > now_ms:
                break
            taken.append(heapq.heappop(self._discarded)[2])
        return taken

    def _remove(self, path: str) -> None:
        if self.files.isdir(path):
            self.files.rmtree(path)
        elif self.files.exists(path):
            self.files.unlink(path)

    # Checkpoints -----------------------------------------------------------------------------

    async def checkpoint_recovery_points(self) -> None:
        self._recovery_points_due = False
        points = self.recovery_points()
        for key, point in points.items():
            # Either value may be on the disk until the write is done.
            log = self.logs[key]
            log.checkpointed_recovery_point = max(log.checkpointed_recovery_point, point)
            log.saved_recovery_point = min(log.saved_recovery_point, point)
        if not await self.write_checkpoint(RECOVERY_POINT_CHECKPOINT, points):
            return
        for key, point in points.items():
            if key in self.logs:
                log = self.logs[key]
                log.checkpointed_recovery_point = log.saved_recovery_point = point

    async def checkpoint_log_starts(self) -> None:
        """Make the starts of all logs durable as they are when this is called, or later: no crash
        afterwards takes one of them back (S4). Who asks while they are being written waits for the
        next time, all of them together: hundreds of logs may begin behind the tier at once. Raises
        OSError."""
        self._log_starts_asked += 1
        mine = self._log_starts_asked
        async with self._saving_log_starts:
            if self._log_starts_answered >= mine:
                return
            await asyncio.sleep(0)  # those who ask in this turn: each write looks at every log
            asked = self._log_starts_asked
            self._log_starts_due = False
            while True:
                starts, logs = self.log_starts(), dict(self.logs)
                if await self.write_checkpoint(LOG_START_CHECKPOINT, starts):
                    break
            for key, log in logs.items():
                log.log_start_saved(starts.get(key, 0))
            self._log_starts_answered = asked

    async def checkpoint_high_watermarks(self) -> None:
        await self.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, self.high_watermarks())

    async def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """See `OffsetCheckpoint.write`. Raises OSError."""
        return await self._checkpoint(name).write(offsets)

    def recovery_points(self) -> dict[TopicPartition, int]:
        return {key: log.recovery_point for key, log in self.logs.items()}

    def log_starts(self) -> dict[TopicPartition, int]:
        """See `_has_start_line`."""
        return {key: log.log_start_offset for key, log in self.logs.items() if _has_start_line(log)}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What a restart may begin with: see `Log.durable_high_watermark`."""
        return {key: log.durable_high_watermark for key, log in self.logs.items()}

    # Stop ------------------------------------------------------------------------------------

    async def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> bool:
        """Flush and close every log; returns whether the shutdown was clean.

        It is not if a log had failed or the disk refuses something now: then there is no marker,
        and the next start recovers. Either way all is closed. If `load` did not come to its end,
        the shutdown is as clean as the last one was.

        Args:
            broker_epoch: of this process; -1: it was never registered, and the marker contains the
                epoch that it found. To the controllers that is the broker's last shutdown.
        """
        if self._closed:
            return False
        self._closed = True
        whole = not self.loading
        clean = (whole or self._marker_taken) and await self._flush_all()
        for log in self.logs.values():
            try:
                log.close(clean=log.failure is None and (whole or clean))
            except (OSError, LogFailed):
                clean = False
            clean = clean and log.failure is None
        if broker_epoch == NO_BROKER_EPOCH:
            broker_epoch = self.previous_broker_epoch
        try:
            if whole:  # else the checkpoints are right, and these logs are not all
                await self._checkpoint_all()
            if clean:
                path = posixpath.join(self.directory, CLEAN_SHUTDOWN)
                self.files.write_atomic(path, encode_clean_shutdown(broker_epoch))
        except OSError:
            return False
        return clean

    async def _checkpoint_all(self) -> None:
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, self.recovery_points()),
            (HIGH_WATERMARK_CHECKPOINT, self.high_watermarks()),
        ):
            await self.write_checkpoint(name, offsets)
        await self.checkpoint_log_starts()

    async def _flush_all(self) -> bool:
        """One batch of flushes for all logs, so that closing each finds nothing to wait for."""
        pending: list[File] = []
        try:
            for log in self.logs.values():
                if log.failure is None:
                    pending += log.seal_for_close()
            await self.files.flush(pending)
            dirty = [log for log in self.logs.values() if log.is_unsettled]
            share = -(-len(dirty) // CLOSING_WORKERS) or 1
            await asyncio.gather(
                *(
                    self.files.run(_settle, dirty[at : at + share])
                    for at in range(0, len(dirty), share)
                )
            )
        except (OSError, LogFailed):
            return False
        return True


def _has_start_line(log: Log) -> bool:
    """Whether its start is not told by the first segment's name already."""
    return log.was_tiered or log.log_start_offset > log.segments.first_base_offset


def _settle(logs: Sequence[Log]) -> None:
    for log in logs:
        log.settle()
