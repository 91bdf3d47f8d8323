"""Shell: All partition logs in the log directory of one node.

Start: `load` opens every folder. After a clean shutdown, which leaves a marker, the logs are
trusted; otherwise each is recovered from its recovery point. Stop: `close` flushes and closes every
log, writes the checkpoints, and the marker last. `load` removes the marker before it opens the
first log, so that a crash during loading counts as a crash. If a start fails but ends in good order
(a log that cannot be opened, a taken port, a signal), `close` restores the marker, so the next
start judges the last shutdown in the same way.

The periodic work is in `chores`. A deletion has two parts: a rename on the event loop, which frees
the name at once, and the removal in workers after `file.delete.delay.ms`.
"""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from protocol.ids import TopicId, random_uuid
from runtime.clock import Clock
from runtime.metrics import Family
from runtime.recent_times import RecentTimes
from storage.files import File, Files
from storage.log import directory as folders
from storage.log.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    NO_BROKER_EPOCH,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    decode_clean_shutdown,
    encode_clean_shutdown,
)
from storage.log.chores import LogChores
from storage.log.config import LogConfig
from storage.log.errors import BadLogDirectory, LogFailed
from storage.log.log import Log, LogHooks
from storage.log.log_checkpoints import LogCheckpoints
from storage.log.manager_settings import LogManagerSettings
from storage.log.removals import Removals

CLOSING_WORKERS: Final = 8
"""Few, so that cold reads and checkpoints find a worker during the removal of a big topic."""


@dataclass(slots=True)
class LoadReport:
    """Findings of the start; for a log line, not for decisions."""

    clean: bool = False
    loaded: int = 0
    recovered: int = 0
    problems: list[str] = field(default_factory=list)


class LogWatcher(Protocol):
    """Observer of logs that works on them over time and must learn of changes to them."""

    def holds(self, log: Log) -> bool:
        """Return whether retention must keep the log's oldest segments for now."""
        ...

    def truncated(self, log: Log) -> None:
        """The end of the log was truncated."""
        ...

    def removed(self, log: Log) -> None:
        """The log is about to be closed and its folder renamed."""
        ...


def is_unidentified(log: Log) -> bool:
    """Return whether the log has records but no topic id.

    A power cut may keep batches that were never flushed but lose partition.metadata. The log may
    belong to a deleted topic of the same name.
    """
    return log.topic_id is None and log.log_end_offset > 0


class LogManager:
    """The logs of one log directory.

    Args:
        directory: exists, is locked and checked (`storage.log.directory`).
        config_for: returns the effective settings of a topic by name; called during loading.
        rng: for the names of deleted folders and for roll jitter.
        on_failure: called with the first disk error of each log.
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
        """Folders renamed to `-stray`: they do not belong to this broker."""
        self.report = LoadReport()
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Broker epoch at the last clean shutdown; -1 after an unclean one."""
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
        self._removals = removals = Removals(files, directory, clock)
        self.checkpoints = LogCheckpoints(files, directory, self.logs, self.report.problems)
        self.chores = LogChores(
            files, clock, self.settings, self.logs, self.checkpoints, removals, holds=self._holds
        )
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._closed = False
        self.loading = False
        """True while `load` runs, or if it failed: some logs may be open and others not."""
        self._marker_taken = False
        self.watcher: LogWatcher | None = None
        self.trimmed: Callable[[Log], None] = lambda log: None
        """Called with each log that lost segments to retention or cleaning."""
        self.log_start_moved: Callable[[Log], None] = lambda log: None
        """Called with each log whose start has moved up."""

    # Start -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Open every log. Raises BadLogDirectory, CorruptLog, OSError."""
        for _ in self.load_steps():
            pass

    def load_steps(self) -> Iterator[Log]:
        """Run `load` step by step, yielding after each log so that the caller can run other
        tasks."""
        names = [
            name
            for name in self.files.listdir(self.directory)
            if self.files.isdir(posixpath.join(self.directory, name))
        ]
        live = self._sort_out(names)
        self.loading = True
        self.report.clean = self._take_clean_marker()
        recovery_points = self.checkpoints.read(RECOVERY_POINT_CHECKPOINT)
        log_starts = self.checkpoints.read(LOG_START_CHECKPOINT)
        self._high_watermarks = self.checkpoints.read(HIGH_WATERMARK_CHECKPOINT)
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
            log.producer_history.recall_ended(list(log.segments))
            log.bounds.tiering_known = False
            self.logs[key] = log
            self._note_loaded(log)
            yield log
        self.loading = False

    def _note_loaded(self, log: Log) -> None:
        self.report.loaded += 1
        if log.bounds.cut_unflushed:
            self.chores.to_flush[log] = None
        recovered = not log.recovery_report.clean
        if recovered:
            self.report.recovered += 1
        if recovered or is_unidentified(log):
            # The log was closed cleanly and has changed since: it may lack records that other
            # brokers count on, so this broker has not stopped cleanly (P11).
            self.previous_broker_epoch = NO_BROKER_EPOCH
        self.report.problems += [
            f"{log.topic}-{log.partition}: {problem}" for problem in log.recovery_report.problems
        ]

    def _sort_out(self, names: Sequence[str]) -> list[tuple[str, TopicPartition]]:
        """Return the folders of live logs. Deleted ones are queued for removal, strays are noted.

        Raises BadLogDirectory for a folder that is not a partition's.
        """
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
                self._removals.add(path, 0)
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

    # Logs ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.logs)

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: TopicId | bytes, config: LogConfig
    ) -> Log:
        """Return the partition's log; create it if it does not exist.

        A log with another topic id belongs to a deleted topic of the same name and is deleted. A
        log with records but without an id may belong to one and is renamed to `-stray`. An empty
        log without an id was created just before a crash and is used.

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
        self.checkpoints.forget(key)
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
        """Close a log and rename its folder now; it is removed later. Returns whether it existed.

        The rename is durable after the next `remove_discarded` or `close`. A power cut before that
        restores the folder under its old name, and the next start renames it to `-stray`.
        """
        log = self._rename_away(topic, partition, folders.DELETE_SUFFIX)
        if log is None:
            return False
        self._removals.add(log.directory, log.config.file_delete_delay_ms)
        return True

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename a log that does not belong to this broker to `-stray`. Returns its new path."""
        log = self._rename_away(topic, partition, folders.STRAY_SUFFIX)
        if log is None:
            return None
        self.strays.append(log.directory)
        return log.directory

    def remove_stray(self, path: str) -> None:
        """Remove a `-stray` folder that is no longer needed."""
        self.strays.remove(path)
        self._removals.add(path, 0)

    def find_strays(self, belongs: Callable[[str, int, TopicId | None], bool]) -> list[Log]:
        """Return the logs for which `belongs(topic, partition, topic id)` is false.

        Logs with records but without a topic id are included: as in Kafka, they belong to no topic.
        """
        return [
            log
            for (topic, partition), log in self.logs.items()
            if is_unidentified(log) or not belongs(topic, partition, log.topic_id)
        ]

    def _rename_away(self, topic: str, partition: int, suffix: str) -> Log | None:
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return None
        self.chores.to_flush.pop(log, None)
        if self.watcher is not None:
            self.watcher.removed(log)
        log.close(clean=False)
        name = folders.renamed_folder(topic, partition, random_uuid(self._rng), suffix)
        target = posixpath.join(self.directory, name)
        self.files.rename(log.directory, target)
        self._removals.note_rename()
        log.directory = log.guard.directory = target
        return log

    # Reports from logs -----------------------------------------------------------------------

    def _note_rolled(self, log: Log) -> None:
        self.chores.to_flush[log] = None

    def _failed(self, log: Log, error: BaseException) -> None:
        self._on_failure(log, error)

    def _truncated(self, log: Log) -> None:
        self.checkpoints.recovery_points_due = True
        self.chores.to_flush[log] = None
        if self.watcher is not None:
            self.watcher.truncated(log)

    def _start_lowered(self, log: Log) -> None:
        self.checkpoints.correct_log_start(log)

    def _start_owed(self, log: Log) -> None:
        self.checkpoints.log_starts_due = True

    def _holds(self, log: Log) -> bool:
        return self.watcher is not None and self.watcher.holds(log)

    def _discard(self, log: Log, paths: Sequence[str]) -> None:
        for path in paths:
            self._removals.add(path, log.config.file_delete_delay_ms)
        self.trimmed(log)

    def collect(self) -> Iterator[Family]:
        """Yield the metrics of this directory for the metrics registry."""
        yield self._flush_times.family(
            "kafka_log_logflushstats_logflushrateandtimems",
            "Time to flush a log to the disk, ms; not at start and stop",
        )

    # Periodic work ---------------------------------------------------------------------------

    def reconfigure(self, settings: LogManagerSettings) -> None:
        """Apply other settings, also to the open logs."""
        self.settings = self.chores.settings = settings
        for log in self.logs.values():
            log.producers.expiration_ms = settings.producer_id_expiration_ms

    async def remove_discarded(self, *, at_once: bool = False) -> int:
        """Remove renamed files and folders whose delay is over; all of them if `at_once`.

        Returns how many. Raises OSError.
        """
        return await self._removals.run(at_once=at_once)

    # Stop ------------------------------------------------------------------------------------

    async def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> bool:
        """Flush and close every log. Returns whether the shutdown was clean.

        It is not clean if a log had failed or the disk refuses something now: then no marker is
        written, and the next start recovers. All logs are closed either way. If `load` did not
        finish, the shutdown is as clean as the last one was.

        Args:
            broker_epoch: of this process; -1: it never registered, and the marker gets the epoch
            that the start found. For the controllers, that is the broker's last shutdown.
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
            if whole:  # otherwise the checkpoints are right, and these logs are not all
                await self.checkpoints.save_all()
            if clean:
                path = posixpath.join(self.directory, CLEAN_SHUTDOWN)
                self.files.write_atomic(path, encode_clean_shutdown(broker_epoch))
        except OSError:
            return False
        return clean

    async def _flush_all(self) -> bool:
        """Flush all logs in one batch, so that closing each one does not wait."""
        pending: list[File] = []
        try:
            for log in self.logs.values():
                if log.failure is None:
                    pending += log.seal_for_close()
            await self.files.flush(pending)
            dirty = [log for log in self.logs.values() if log.durability.is_unsettled]
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


def _settle(logs: Sequence[Log]) -> None:
    for log in logs:
        log.durability.settle()
