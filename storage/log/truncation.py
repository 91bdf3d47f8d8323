"""Shell: Truncation of a log, and restarts of an emptied log at another offset.

Epochs and producer state follow the log end. A restart in the middle waits for the disk; it checks
after each wait that the log was not closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from runtime.clock import Clock
from storage.files import Files
from storage.log.bootstrap import Beginning, marker_path
from storage.log.bounds import LogBounds
from storage.log.config import LogConfig
from storage.log.durability import LogDurability
from storage.log.epoch_history import EpochHistory
from storage.log.errors import LogFailed
from storage.log.guard import LogGuard
from storage.log.owner import LogOwner
from storage.log.producer_history import ProducerHistory
from storage.log.segments import Segments


class LogTruncation:
    """Truncates and restarts one log. config: replaced when the log's settings change."""

    __slots__ = (
        "_bounds", "_clock", "_durability", "_files", "_guard", "_history", "_owner", "_producers",
        "_segments", "config",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        config: LogConfig,
        clock: Clock,
        bounds: LogBounds,
        segments: Segments,
        history: EpochHistory,
        producers: ProducerHistory,
        durability: LogDurability,
        guard: LogGuard,
        owner: LogOwner,
    ) -> None:
        self.config = config
        self._files = files
        self._clock = clock
        self._bounds = bounds
        self._segments = segments
        self._history = history
        self._producers = producers
        self._durability = durability
        self._guard = guard
        self._owner = owner

    def truncate_to(self, offset: int) -> bool:
        """Remove `offset` and everything after it. Returns whether any batches were removed.

        A batch that begins before `offset` and contains it is removed entirely. Epochs and producer
        state follow; the high watermark is lowered to the new end if it was above.

        Below the local log start of a tiered log, the log start stays, and so do the epochs of the
        remote part. The producer state at that offset is then not known locally
        (`ProducerHistory.lacks_beginning`). Raises LogFailed.
        """
        bounds = self._bounds
        if offset >= bounds.log_end_offset:
            # An epoch that this replica began as leader, without a batch, is not history.
            self._history.cache.truncate_from_end(bounds.log_end_offset)
            return False
        if offset < self._segments.first_base_offset:
            self.start_at(offset, min(offset, bounds.log_start_offset))
            return True
        self._guard.run(lambda: self._truncate(offset))
        self._owner.truncated()
        return True

    def _truncate(self, offset: int) -> None:
        bounds = self._bounds
        bounds.truncations += 1
        end = self._segments.cut(offset)
        bounds.note_cut(end)
        if self._producers.snapshots.remove_above(end):
            # Otherwise a crash could restore these snapshots next to batches that were written
            # later.
            self._files.fsync_dir(self._guard.directory)
        bounds.end_at(end)
        self._history.cache.truncate_from_end(end)
        self._producers.reload(list(self._segments))

    def start_at(self, offset: int, log_start_offset: int) -> None:
        """Empty the log and let its local part begin at `offset`. Raises LogFailed."""
        self._guard.run(lambda: self._start_at(offset, log_start_offset))
        self._owner.truncated()

    def _start_at(self, offset: int, log_start_offset: int) -> None:
        lowered = log_start_offset < self._bounds.log_start_offset
        self._drop_all()
        self._files.fsync_dir(self._guard.directory)
        self._begin_empty(offset, log_start_offset)
        # The new segment's file name defines the log start.
        self._files.fsync_dir(self._guard.directory)
        if log_start_offset < offset:
            self._history.cache.truncate_from_end(offset)
        else:
            self._history.cache.clear()
        self._history.write()
        if lowered:
            self._owner.start_lowered()

    def _drop_all(self) -> None:
        self._bounds.truncations += 1
        self._segments.drop_from(0)
        self._producers.clear()

    def _begin_empty(self, offset: int, log_start_offset: int) -> None:
        self._segments.begin(offset, self.config, self._clock.now_ms())
        self._bounds.begin_empty(offset, log_start_offset)

    # A beginning in the middle ---------------------------------------------------------------

    async def begin_at(
        self,
        beginning: Beginning,
        save_log_start: Callable[[], Awaitable[None]],
        still_wanted: Callable[[], bool],
    ) -> bool:
        """Empty the log and let it begin in the middle; see `Log.begin_at`."""
        beginning.check()
        self._guard.check()
        self._bounds.bootstrapping = True
        try:
            begun = await self._bootstrap(beginning, save_log_start, still_wanted)
        except OSError as error:
            if self._guard.closed:
                return False
            self._guard.fail(error)
            raise LogFailed(self._guard.directory, error) from error
        self._bounds.bootstrapping = self._guard.closed
        return begun

    async def _bootstrap(
        self,
        beginning: Beginning,
        save_log_start: Callable[[], Awaitable[None]],
        still_wanted: Callable[[], bool],
    ) -> bool:
        """Run the steps of `begin_at`. Raises OSError."""
        directory, durability = self._guard.directory, self._durability
        self._files.touch(marker_path(directory))
        if not await durability.settle_folder():
            return False
        wanted = still_wanted()
        if wanted:
            self._begin_with(beginning)
            if not await durability.settle_folder():
                return False
            await self._history.settle()
            if self._guard.closed:
                return False
            if not await durability.flush_snapshots():
                return False
            await save_log_start()
            if self._guard.closed:
                return False
        self._files.unlink(marker_path(directory))
        if not await durability.settle_folder():
            return False
        self._history.file.let_go()
        return wanted

    def _begin_with(self, beginning: Beginning) -> None:
        """Set the state of [log start, local start) in an empty log. Later appends continue from
        it."""
        local, epochs = beginning.local_start_offset, self._history.cache
        self._drop_all()
        self._begin_empty(local, beginning.log_start_offset)
        self._owner.truncated()
        epochs.clear()
        for entry in beginning.epochs:
            epochs.assign(*entry)
        epochs.truncate_from_start(beginning.log_start_offset, local)
        self._history.file.hold(local)
        self._producers.begin_with(beginning)
