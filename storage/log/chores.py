"""Shell: Periodic work on the logs of a directory: flushes, checkpoints, epoch files, retention.

Each job checks the clock itself. The owner calls each of `jobs` about every second, each from its
own task: a slow disk that keeps one job busy for minutes (the removal of a big topic, a flush of
thousands of logs) must not delay the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from runtime.clock import Clock
from runtime.slices import Slices, in_slices
from storage.files import Files
from storage.log.checkpoints import TopicPartition
from storage.log.epoch_file import TOGETHER, write_all
from storage.log.errors import LogFailed
from storage.log.log import Log
from storage.log.log_checkpoints import LogCheckpoints
from storage.log.manager_settings import LogManagerSettings
from storage.log.removals import Removals

REMOVED_PER_STEP: Final = 32
"""Number of segments; each takes four renames."""
LOOKED_AT_ONCE: Final = 64
"""Number of logs; a check of one takes a microsecond."""
FLUSHED_AT_ONCE: Final = 64
"""Number of logs that share the writes of the file system (see `storage.files.real`)."""


class LogChores:
    """The periodic jobs of one directory."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        settings: LogManagerSettings,
        logs: Mapping[TopicPartition, Log],
        checkpoints: LogCheckpoints,
        removals: Removals,
        *,
        holds: Callable[[Log], bool],
    ) -> None:
        """Set the logs, a mapping that changes, and their parts. Retention leaves a log alone while
        `holds` returns True for it."""
        self.settings = settings
        self.to_flush: dict[Log, None] = {}
        """Logs to flush although no limit of theirs is reached."""
        self._files = files
        self._clock = clock
        self._logs = logs
        self._checkpoints = checkpoints
        self._removals = removals
        self._holds = holds
        self._epochs_due = True
        self._due_ms: dict[str, float] = {}

    def jobs(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Return the periodic jobs by name. Call each about every second; it runs only what is
        due."""
        return {
            "flush": self.flush_scheduled,
            "checkpoints": self.checkpoint_scheduled,
            "leader epochs": self.save_epochs_scheduled,
            "retention": self.tidy_scheduled,
            "removal": self._removals.run,
        }

    async def flush_scheduled(self) -> None:
        if self._is_due("flush", self.settings.flush_scheduler_interval_ms):
            await self.flush_due()

    async def checkpoint_scheduled(self) -> None:
        settings = self.settings
        if self._checkpoints.recovery_points_due or self._is_due(
            "recovery points", settings.flush_offset_checkpoint_interval_ms
        ):
            await self._checkpoints.save_recovery_points()
        if self._checkpoints.log_starts_due or self._is_due(
            "log starts", settings.flush_start_offset_checkpoint_interval_ms
        ):
            await self._checkpoints.save_log_starts()
        if self._is_due("high watermarks", settings.high_watermark_checkpoint_interval_ms):
            await self._checkpoints.save_high_watermarks()

    async def save_epochs_scheduled(self) -> None:
        """Save epoch files for which no high watermark waits: of idle partitions, and after
        recovery."""
        if self._epochs_due or self._is_due(
            "leader epochs", self.settings.flush_offset_checkpoint_interval_ms
        ):
            self._epochs_due = False
            await self.save_epochs()

    async def save_epochs(self) -> None:
        """Write every leader-epoch-checkpoint that is out of date, a few at a time."""
        dirty = [log for log in self._logs.values() if log.epochs.dirty and log.failure is None]
        for at in range(0, len(dirty), TOGETHER):
            writes = {
                log: write
                for log in dirty[at : at + TOGETHER]
                if (write := log.history.to_write()) is not None
            }
            errors = await self._files.run(write_all, self._files, list(writes.values()))
            for (log, write), error in zip(writes.items(), errors, strict=True):
                try:
                    if error is not None:
                        raise error
                    log.history.written(write)
                except OSError as failure:
                    if not log.closed:
                        log.guard.fail(failure)

    async def tidy_scheduled(self) -> None:
        """Apply retention and expire idle producers, when due."""
        settings = self.settings
        if self._is_due("producers", settings.producer_id_expiration_check_interval_ms):
            await in_slices(self.expiry_steps(), self._clock)
        if self._is_due("retention", settings.retention_check_interval_ms):
            await in_slices(self.retention_steps(list(self._logs)), self._clock)
            owing = [key for key, log in self._logs.items() if log.bounds.owes_log_start]
            if owing:
                await self._checkpoints.save_log_starts()
                await in_slices(self.retention_steps(owing), self._clock)

    def _is_due(self, what: str, interval_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._due_ms.get(what)
        if due_ms is None or now_ms >= due_ms:
            self._due_ms[what] = now_ms + interval_ms
        return due_ms is not None and now_ms >= due_ms

    def retention_steps(self, keys: Sequence[TopicPartition]) -> Iterator[int]:
        """Apply retention in steps of one log or some of its segments; yield how many were
        removed."""
        for key in keys:
            while removed := self._retain(key):
                yield removed
            yield 0

    def _retain(self, key: TopicPartition) -> int:
        log = self._logs.get(key)
        if log is None or self._holds(log):
            return 0
        try:
            return log.retention(self._clock.now_ms(), REMOVED_PER_STEP)
        except LogFailed:
            return 0  # the owner was notified through on_failure

    def expiry_steps(self) -> Iterator[int]:
        """Expire idle producers in steps; yield how many were removed."""
        for log in list(self._logs.values()):
            yield from log.producers.expiry_steps(self._clock.now_ms())

    async def flush_due(self) -> None:
        """Flush the logs that need it.

        These are logs that rolled or were truncated since the last call, or by a process that was
        killed, and those for which flush.messages or flush.ms requires a flush.
        """
        now_ms = self._clock.now_ms()
        wanted, self.to_flush = self.to_flush, {}
        slices = Slices(self._clock)
        for at, log in enumerate(list(self._logs.values())):
            if log.durability.is_due(log.config, now_ms):
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
