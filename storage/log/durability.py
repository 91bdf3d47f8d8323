"""Shell: Flushes of a log, and the point up to which it is durable.

A flush captures its input first and checks the log's state again after each wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.clock import Clock
from runtime.slices import in_slices
from storage.files import File, Files
from storage.log.bounds import LogBounds
from storage.log.config import LogConfig
from storage.log.epoch_history import EpochHistory
from storage.log.errors import LogFailed
from storage.log.guard import LogGuard
from storage.log.owner import LogOwner
from storage.log.producer_history import ProducerHistory
from storage.log.segments import Segments


class LogDurability:
    """Makes one log durable."""

    __slots__ = (
        "_bounds", "_clock", "_durable_removals", "_epochs", "_files", "_guard", "_last_flush_ms",
        "_metadata_file", "_owner", "_producers", "_removals", "_segments", "_snapshots",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        clock: Clock,
        bounds: LogBounds,
        segments: Segments,
        epochs: EpochHistory,
        producers: ProducerHistory,
        guard: LogGuard,
        owner: LogOwner,
    ) -> None:
        self._files = files
        self._clock = clock
        self._bounds = bounds
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._snapshots = producers.snapshots
        self._guard = guard
        self._owner = owner
        self._metadata_file: File | None = None
        self._removals = self._durable_removals = 0
        self._last_flush_ms = clock.now_ms()

    def note_metadata_file(self, file: File | None) -> None:
        """Let the next flush include a new partition.metadata."""
        self._metadata_file = file

    def note_removal(self) -> None:
        """Let the next flush make removals of segments durable."""
        self._removals += 1

    def is_due(self, config: LogConfig, now_ms: int) -> bool:
        """Return whether flush.messages or flush.ms requires a flush now."""
        unflushed = self._bounds.log_end_offset - self._bounds.recovery_point
        return unflushed > 0 and (
            unflushed >= config.flush_messages or now_ms - self._last_flush_ms >= config.flush_ms
        )

    async def flush(self) -> int:
        """Make all appended batches durable; see `Log.flush`."""
        self._guard.check()
        if self._producers.is_encoding:
            await self._finish_snapshot()
        bounds, guard, epochs = self._bounds, self._guard, self._epochs.cache
        target, truncations, removals = bounds.log_end_offset, bounds.truncations, self._removals
        guard.check()
        if target <= bounds.recovery_point and not (epochs.unsettled or bounds.cut_unflushed):
            return bounds.recovery_point
        if guard.closed:
            return bounds.recovery_point
        try:
            taken = list(self._snapshots.unflushed)
            began_ms = self._clock.monotonic_ms()
            await self._files.flush(self.unflushed_files())
            self._owner.flushed(self._clock.monotonic_ms() - began_ms)
            self._flushed(taken)
            if epochs.unsettled:
                await self._epochs.settle()
            if removals > self._durable_removals and await self.settle_folder():
                # Only now: if a power cut undid a removal, a segment would reappear below the
                # recovery point.
                self._durable_removals = max(self._durable_removals, removals)
        except OSError as error:
            if guard.closed:
                return bounds.recovery_point  # the log was deleted in the meantime
            guard.fail(error)
            raise LogFailed(guard.directory, error) from error
        if truncations == bounds.truncations:
            bounds.flushed_to(target)
        self._last_flush_ms = self._clock.now_ms()
        return bounds.recovery_point

    async def _finish_snapshot(self) -> None:
        try:
            await in_slices(self._producers.snapshot_steps(), self._clock)
        except OSError as error:
            self._guard.fail(error)
            raise LogFailed(self._guard.directory, error) from error

    def flush_blocking(self) -> None:
        """Flush as `flush` does, blocking; for start and stop. Raises LogFailed."""
        target = self._bounds.log_end_offset
        self._guard.run(self._flush_files)
        self._guard.run(self.settle)
        self._bounds.flushed_to(target)

    def _flush_files(self) -> None:
        for file in self.unflushed_files():
            self._files.fsync(file)
        self._flushed(list(self._snapshots.unflushed))

    def unflushed_files(self) -> list[File]:
        """Return the open files that may have bytes that are not on the disk."""
        files = self._segments.unflushed_files(self._bounds.recovery_point)
        files += self._snapshots.unflushed.values()
        if self._metadata_file is not None:
            files.append(self._metadata_file)
        return files

    def _flushed(self, snapshots: Sequence[int]) -> None:
        self._snapshots.flushed(snapshots)
        if self._metadata_file is not None:
            self._metadata_file.close()
            self._metadata_file = None

    def let_go(self) -> None:
        """Close the files that wait for a flush."""
        self._flushed(list(self._snapshots.unflushed))

    async def flush_snapshots(self) -> bool:
        """Make the producer snapshots durable. Returns False if the log was closed in the
        meantime. Raises OSError."""
        await self._files.flush(list(self._snapshots.unflushed.values()))
        if self._guard.closed:
            return False
        self._snapshots.flushed(list(self._snapshots.unflushed))
        return True

    async def settle_folder(self) -> bool:
        """Make the folder's names durable. Returns False if the log was closed in the meantime."""
        if not self._guard.closed:
            await self._files.flush_dir(self._guard.directory)
        return not self._guard.closed

    @property
    def is_unsettled(self) -> bool:
        """True if a clean close must call `settle` first."""
        owed = self._epochs.cache.unsettled or self._removals > self._durable_removals
        return self._guard.failure is None and owed

    def settle(self) -> None:
        """Make epochs and segment removals durable.

        After a clean close, the next start does not look for removals that reached the disk out of
        order (P18). Runs in a worker: a failure does not fail the log. Raises OSError.
        """
        removals = self._removals
        self._epochs.file.write(self._guard.directory)
        if removals > self._durable_removals:
            self._files.fsync_dir(self._guard.directory)
            self._durable_removals = removals
