"""Shell: Reads of a log's batches and timestamps.

A read never walks more than one index interval. Positions of recent batch boundaries are
remembered, so the usual reads (a follower or consumer at the end) are one pread.
"""

from __future__ import annotations

from protocol.batch.header import NO_TIMESTAMP
from storage.files import Files
from storage.log import timestamps
from storage.log.bounds import LogBounds
from storage.log.errors import BelowLocalStart, CorruptLog, LogFailed, OffsetOutOfRange
from storage.log.guard import LogGuard
from storage.log.indexes import AbortedTxn, CorruptIndex
from storage.log.local_start import LocalStart
from storage.log.segments import Segments, SegmentSlice, complete_first
from storage.log.timestamps import Search


class LogReader:
    """Reads one log inside its bounds."""

    __slots__ = ("_bounds", "_files", "_guard", "_local_start", "_segments")

    def __init__(
        self, files: Files, bounds: LogBounds, segments: Segments, guard: LogGuard
    ) -> None:
        self._files = files
        self._bounds = bounds
        self._segments = segments
        self._guard = guard
        self._local_start = LocalStart()

    def read(
        self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True
    ) -> bytes:
        """Read batches inside the bounds, with the limits and errors of `Log.read`."""
        where = self._locate(offset, max_bytes, max_offset)
        if where is None:
            return b""
        try:
            data = where.segment.log.pread(where.size_bytes, where.position)
            return complete_first(where, data, min_one_batch, where.segment.log.pread)
        except OSError as error:
            raise LogFailed(self._guard.directory, error) from error

    async def read_cold(
        self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True
    ) -> bytes:
        """Run `read` with the disk access in a worker thread, for data that is probably not
        cached."""
        segments = self._segments
        while True:
            where = self._locate(offset, max_bytes, max_offset)
            if where is None:
                return b""
            generation = segments.generation
            try:
                file = where.segment.log
                data = await self._files.pread(file, where.size_bytes, where.position)
                data = complete_first(where, data, min_one_batch, file.pread)
            except OSError as error:
                if generation != segments.generation:
                    continue  # the segment was removed during the read
                raise LogFailed(self._guard.directory, error) from error
            if generation == segments.generation:
                return data

    def cached_bytes(self, offset: int, max_bytes: int, most_bytes: int) -> int | None:
        """Return how many bytes a read of at most `max_bytes` would return from `offset` on.

        None if the read would probably wait for the disk, or return more than `most_bytes`. Raises
        the errors of `read`.
        """
        where = self._locate(offset, max_bytes, self._bounds.log_end_offset)
        if where is None:
            return 0
        size, position = where.size_bytes, where.position
        if size > most_bytes:
            return None
        cached = self._guard.look(lambda: self._files.is_cached(where.segment.log, size, position))
        return size if cached else None

    def visible_bytes(self, offset: int, max_offset: int) -> int:
        """Return how many bytes a read from `offset` to `max_offset` could return without a limit.

        Raises the errors of `read`.
        """
        where = self._locate(offset, 0, max_offset)
        return 0 if where is None else where.limit_bytes

    def _locate(self, offset: int, max_bytes: int, max_offset: int) -> SegmentSlice | None:
        bounds = self._bounds
        start, end = bounds.log_start_offset, bounds.log_end_offset
        if offset < bounds.local_log_start_offset and offset >= start:
            raise BelowLocalStart(offset, bounds.local_log_start_offset)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if offset >= max_offset or offset == end:
            return None
        try:
            return self._segments.locate(offset, max_bytes, max_offset, end)
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self._guard.directory, error) from error

    def search_time(self, timestamp_ms: int | None) -> Search:
        """Search step by step for the first record with this timestamp or a later one.

        None searches for the highest timestamp instead (ListOffsets -3, KIP-734). The steps raise
        LogFailed.
        """
        segments, start = self._segments, self._bounds.log_start_offset
        try:
            if timestamp_ms is None:
                return (yield from timestamps.highest(segments, start))
            return (yield from timestamps.first_at_or_after(segments, timestamp_ms, start))
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self._guard.directory, error) from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [start, end), for a read_committed fetch."""
        segments = self._segments
        return self._guard.look(lambda: segments.aborted_transactions(start_offset, end_offset))

    def aborted_in(self, offset: int, size_bytes: int, max_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap a read of `size_bytes` from `offset` on,
        which was limited to `max_offset`. Raises LogFailed."""
        segments = self._segments
        return self._guard.look(lambda: segments.aborted_in(offset, size_bytes, max_offset))

    def local_start_ms(self) -> int:
        """Return the timestamp of the first local batch (epoch ms); -1 if it has none, or does
        not exist. Raises LogFailed."""
        known, segments = self._local_start, self._segments
        start, truncations = self._bounds.local_log_start_offset, self._bounds.truncations
        if known.holds(segments[0], start, truncations):
            return known.timestamp_ms
        if self._guard.failure is not None or self._guard.closed or not segments.size_bytes:
            return NO_TIMESTAMP
        return self._guard.look(lambda: known.find(segments, start, truncations))
