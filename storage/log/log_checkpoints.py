"""Shell: Offset checkpoints of all logs in a directory.

A start recovers each log from its recovery point, takes the records below its log start as deleted,
and those below its high watermark as committed. Other code may have checkpoints of its own (`read`,
`write`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from storage.files import Files
from storage.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    TopicPartition,
)
from storage.log.log import Log
from storage.log.offset_checkpoint import OffsetCheckpoint


class LogCheckpoints:
    """The checkpoints of the logs of one directory."""

    def __init__(
        self, files: Files, directory: str, logs: Mapping[TopicPartition, Log], problems: list[str]
    ) -> None:
        """Set the directory and its logs, a mapping that changes. Damaged files are added to
        `problems`."""
        self._files = files
        self._directory = directory
        self._logs = logs
        self._problems = problems
        self._known: dict[str, OffsetCheckpoint] = {}
        self.recovery_points_due = False
        """True if the recovery points should be saved soon: a log was truncated."""
        self.log_starts_due = False
        """True if the log starts should be saved soon: tiering of a log was changed."""
        self._saving_log_starts = asyncio.Lock()
        self._log_starts_asked = self._log_starts_answered = 0

    def read(self, name: str) -> dict[TopicPartition, int]:
        """Read an offset checkpoint of this directory; empty if it is missing or corrupt."""
        try:
            return self._file(name).read()
        except CorruptCheckpoint as error:
            # Recovery then reads more, and high watermarks begin at the log start.
            self._problems.append(f"{name}: {error}")
            return {}

    async def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Write a checkpoint (see `OffsetCheckpoint.write`). Raises OSError."""
        return await self._file(name).write(offsets)

    def _file(self, name: str) -> OffsetCheckpoint:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = OffsetCheckpoint(self._files, self._directory, name)
        return found

    def forget(self, key: TopicPartition) -> None:
        """Note that a new log replaces an earlier one, to which written offsets belong."""
        for checkpoint in self._known.values():
            checkpoint.forget(key, self._logs)

    def correct_log_start(self, log: Log) -> None:
        """Write the lowered start of a log before this returns. Raises OSError."""
        key = (log.topic, log.partition)
        start = log.log_start_offset if _has_start_line(log) else None
        self._file(LOG_START_CHECKPOINT).correct(key, start, self._logs)

    async def save_recovery_points(self) -> None:
        """Save the offsets from which a start recovers. Raises OSError."""
        self.recovery_points_due = False
        points = self.recovery_points()
        for key, point in points.items():
            # Until the write is done, either value may be on the disk.
            bounds = self._logs[key].bounds
            bounds.checkpointed_recovery_point = max(bounds.checkpointed_recovery_point, point)
            bounds.saved_recovery_point = min(bounds.saved_recovery_point, point)
        if not await self.write(RECOVERY_POINT_CHECKPOINT, points):
            return
        for key, point in points.items():
            if key in self._logs:
                log = self._logs[key]
                log.bounds.checkpointed_recovery_point = log.bounds.saved_recovery_point = point

    async def save_log_starts(self) -> None:
        """Checkpoint the starts of all logs durably: no later crash moves one of them back (S4).

        The starts are those at the time of this call, or later ones. Calls made during a write
        share the next write: hundreds of logs may begin behind the tier at once. Raises OSError.
        """
        self._log_starts_asked += 1
        mine = self._log_starts_asked
        async with self._saving_log_starts:
            if self._log_starts_answered >= mine:
                return
            # let callers of this event-loop iteration join: each write visits every log
            await asyncio.sleep(0)
            asked = self._log_starts_asked
            self.log_starts_due = False
            while True:
                starts, logs = self.log_starts(), dict(self._logs)
                if await self.write(LOG_START_CHECKPOINT, starts):
                    break
            for key, log in logs.items():
                log.trimming.saved(starts.get(key, 0))
            self._log_starts_answered = asked

    async def save_high_watermarks(self) -> None:
        """Save the high watermarks. Raises OSError."""
        await self.write(HIGH_WATERMARK_CHECKPOINT, self.high_watermarks())

    async def save_all(self) -> None:
        """Save all offsets at the end of a process. Raises OSError."""
        await self.write(RECOVERY_POINT_CHECKPOINT, self.recovery_points())
        await self.write(HIGH_WATERMARK_CHECKPOINT, self.high_watermarks())
        await self.save_log_starts()

    def recovery_points(self) -> dict[TopicPartition, int]:
        return {key: log.recovery_point for key, log in self._logs.items()}

    def log_starts(self) -> dict[TopicPartition, int]:
        """Return the log starts that the checkpoint needs, see `_has_start_line`."""
        logs = self._logs
        return {key: log.log_start_offset for key, log in logs.items() if _has_start_line(log)}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks for a restart, see `Log.durable_high_watermark`."""
        return {key: log.bounds.durable_high_watermark for key, log in self._logs.items()}


def _has_start_line(log: Log) -> bool:
    """Return whether the checkpoint needs the log's start: its first segment's name may differ."""
    return log.bounds.was_tiered or log.log_start_offset > log.segments.first_base_offset
