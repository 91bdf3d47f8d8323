"""Shell: The leader epochs of a log inside its bounds, and the file that has them."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.ids import TopicId
from storage.files import Files
from storage.log.bounds import LogBounds
from storage.log.epoch_file import EpochFile, EpochWrite
from storage.log.epochs import EpochCache
from storage.log.guard import LogGuard


class EpochHistory:
    """The epochs of one log.

    cache: the list of epochs. file: leader-epoch-checkpoint. topic_id: names temporary files.
    """

    __slots__ = ("_bounds", "_guard", "cache", "file", "topic_id")

    def __init__(self, files: Files, cache: EpochCache, bounds: LogBounds, guard: LogGuard) -> None:
        self.cache = cache
        self.file = EpochFile(files, cache)
        self.topic_id: TopicId | None = None
        self._bounds = bounds
        self._guard = guard

    @property
    def last_batch_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there never was one or it is not known.

        This is not the latest epoch, which may have begun here without a batch. If retention has
        removed all batches, it is the epoch of the last of them. It is not known in two cases:

        - The log was restarted at its leader's log start.
        - Kafka has emptied the log: its epoch file then has only the epoch in force at the end,
          which may have no batch.
        """
        return self.cache.epoch_at(self._bounds.log_end_offset - 1)

    @property
    def lacks_remote_part(self) -> bool:
        """True if the epochs of the remote part are not known here: their file was lost.

        Without them the lineage is unknown. So nothing is copied, expired or read remotely until
        `restore` has been called with the remote store's epochs.
        """
        return (
            self._bounds.is_partly_remote and self.cache.epoch_at(self._bounds.log_start_offset) < 0
        )

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch not above this one; (-1, -1) if
        undefined."""
        return self.cache.end_offset_for(epoch, self._bounds.log_end_offset)

    def lead(self, epoch: int) -> None:
        """Begin `epoch` at the log end: this replica leads from now on."""
        if epoch > self.cache.latest_epoch:
            self.file.begin(epoch, self._bounds.log_end_offset)

    def restore(self, entries: Sequence[tuple[int, int]]) -> bool:
        """Restore epochs of offsets below the local log start. Returns whether any were new."""
        changed = self.cache.prepend(entries)
        if changed:
            self.forget()
        return changed

    def forget(self) -> None:
        """Drop the epochs of offsets that no crash can bring back."""
        bounds = self._bounds
        start = bounds.log_start_offset
        if bounds.was_tiered:
            start = min(start, bounds.saved_log_start)
        self.cache.truncate_from_start(start, bounds.log_end_offset)

    # The file --------------------------------------------------------------------------------

    def write(self) -> None:
        """Write leader-epoch-checkpoint durably if it is out of date. Raises LogFailed."""
        self._guard.run(lambda: self.file.write(self._guard.directory))

    def to_write(self) -> EpochWrite | None:
        """Return the epoch list to write (see `EpochFile.to_write`); None if the log is closed."""
        if self._guard.closed:
            return None
        return self.file.to_write(self._guard.directory, self.topic_id)

    def written(self, write: EpochWrite) -> None:
        """Finish an epoch write (see `EpochFile.written`). Raises OSError."""
        if not self._guard.closed:
            self.file.written(write)

    async def settle(self) -> None:
        """Make the file durable without blocking, unless the log is closed. Raises OSError."""
        guard = self._guard
        await self.file.settle(guard.directory, self.topic_id, lambda: guard.closed)
