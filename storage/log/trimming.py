"""The start of a log: its moves, and the removal of segments past retention."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from runtime.marks import mark
from storage.files import Files
from storage.log.bounds import LogBounds
from storage.log.config import LogConfig
from storage.log.durability import LogDurability
from storage.log.epoch_history import EpochHistory
from storage.log.errors import OffsetOutOfRange
from storage.log.guard import LogGuard
from storage.log.owner import LogOwner
from storage.log.producer_history import ProducerHistory
from storage.log.retention import closes_last, expired
from storage.log.segment import Segment
from storage.log.segments import Segments


class LogTrimming:
    """Moves the start of one log and removes its oldest segments.

    config: replaced when the log's settings change. roll: begins a new segment.
    """

    __slots__ = (
        "_bounds", "_durability", "_files", "_guard", "_history", "_owner", "_producers", "_roll",
        "_segments", "config",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        config: LogConfig,
        bounds: LogBounds,
        segments: Segments,
        history: EpochHistory,
        producers: ProducerHistory,
        durability: LogDurability,
        roll: Callable[[], object],
        guard: LogGuard,
        owner: LogOwner,
    ) -> None:
        self.config = config
        self._files = files
        self._bounds = bounds
        self._segments = segments
        self._history = history
        self._producers = producers
        self._durability = durability
        self._roll = roll
        self._guard = guard
        self._owner = owner

    def leave_remote(self) -> bool:
        """Drop the remote part: the log starts at its first local segment (KIP-950).

        Returns whether the log start moved.
        """
        if not self._bounds.is_partly_remote:
            return False
        self._bounds.copied_to = 0
        return self.advance_to(self._bounds.local_log_start_offset)

    def advance_to(self, offset: int) -> bool:
        """Move the log start up to `offset`, after DeleteRecords or when the leader's start moved.

        Returns whether the start moved; the next `retain` removes segments. Raises OffsetOutOfRange
        if `offset` is above the high watermark.
        """
        bounds = self._bounds
        if offset > bounds.high_watermark:
            raise OffsetOutOfRange(offset, bounds.log_start_offset, bounds.high_watermark)
        if offset <= bounds.log_start_offset:
            return False
        bounds.log_start_offset = offset
        bounds.local_log_start_offset = max(bounds.local_log_start_offset, offset)
        self._history.forget()
        self._producers.states.on_log_start(offset)
        self._owner.log_start_moved()
        return True

    def saved(self, offset: int) -> None:
        """Note that the checkpoint on the disk has `offset` as log start, or no line, which counts
        as 0."""
        self._bounds.saved_log_start = min(offset, self._bounds.log_start_offset)
        self._history.forget()

    # Retention -------------------------------------------------------------------------------

    def retain(self, now_ms: int, limit: int | None) -> int:
        """Remove up to `limit` segments that are past retention; see `Log.retention`."""
        if self._guard.failure is not None:
            return 0
        bounds, segments = self._bounds, list(self._segments)
        doomed = self._guard.look(
            lambda: expired(
                segments,
                self.config,
                now_ms,
                log_start_offset=bounds.log_start_offset,
                log_end_offset=bounds.log_end_offset,
                high_watermark=bounds.high_watermark,
                copied_to=bounds.copied_to,
            )
        )
        if bounds.was_tiered:
            doomed = self._abandon(segments, doomed)
        if limit is not None:
            doomed = min(doomed, limit)
        if doomed:
            self._guard.run(lambda: self.delete_oldest(doomed))
        elif self._guard.look(
            lambda: closes_last(
                segments,
                self.config,
                now_ms,
                log_end_offset=bounds.log_end_offset,
                high_watermark=bounds.high_watermark,
            )
        ):
            self._guard.run(self._roll)
        return doomed

    def _abandon(self, segments: Sequence[Segment], doomed: int) -> int:
        """Advance a tiered log's start past segments that go without a copy.

        Returns how many of the `doomed` may be removed now. After a crash the log begins at the
        checkpointed start, not at a segment, so that start limits the removal (S4).
        """
        bounds = self._bounds
        ends = [segment.base_offset for segment in segments[1:]] + [bounds.log_end_offset]
        kept_by = bounds.saved_log_start
        if not self.config.copies:
            if doomed:
                self.advance_to(ends[doomed - 1])
        elif not bounds.owes_log_start:
            kept_by = max(kept_by, bounds.copied_to)
        return bisect_right(ends, kept_by, 0, doomed)

    def delete_oldest(self, count: int) -> None:
        """Remove the oldest segments, and move the local log start. Raises OSError."""
        if count == len(self._segments):
            self._roll()
        doomed = self._segments.take_oldest(count)
        first = self._segments.first_base_offset
        self._bounds.local_log_start_offset = max(self._bounds.local_log_start_offset, first)
        if not self.config.copies:
            self.advance_to(first)
        self._durability.note_removal()
        for segment in doomed:
            self._producers.snapshots.remove_oldest_at(segment.base_offset)
            self.discard(segment.rename_deleted())

    def finish_removals(self, first: int) -> None:
        """Remove the segments before a hole that ends at `first`.

        Local retention had removed them, and a crash restored some of them but not the others. A
        read would silently skip the hole, although the remote store has the missing records (P18).
        """
        doomed = sum(segment.base_offset < first for segment in self._segments)
        if doomed and self._guard.failure is None:
            mark("log.removals-finished")
            self._guard.run(lambda: self.delete_oldest(doomed))

    def discard(self, renamed: Sequence[str]) -> None:
        """Remove files that were renamed out of the log, through the owner's hook if there is
        one."""
        if self._owner.discard is not None:
            self._owner.discard(renamed)
        else:
            for path in renamed:
                self._files.unlink(path)
