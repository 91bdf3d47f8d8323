"""Appends to a log, and the segments for them.

An append validates everything, writes once, then changes the state. A failed write changes nothing,
but closes the log for appends until it is reopened (KAFKA-10778): the bytes on the disk after the
last good one are then unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.batch.header import LENGTH_OVERHEAD_BYTES, BatchHeader, Buffer, patch
from protocol.errors import ApiError, ErrorCode
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from storage.log.append import AppendInfo, end_markers, judge_fetched, patched, whole_batches
from storage.log.bounds import LogBounds
from storage.log.config import LogConfig
from storage.log.durability import LogDurability
from storage.log.epoch_history import EpochHistory
from storage.log.errors import LogFailed
from storage.log.guard import LogGuard
from storage.log.indexes import AbortedTxn
from storage.log.owner import LogOwner
from storage.log.producer_history import ProducerHistory
from storage.log.producers import EndMarker, Origin
from storage.log.rolling import must_roll
from storage.log.segment import MAX_RELATIVE, Segment
from storage.log.segments import Segments
from storage.log.verification import NO_VERIFICATION, TransactionGuard


class LogAppender:
    """Appends to one log. config: replaced when the log's settings change."""

    __slots__ = (
        "_bounds", "_clock", "_durability", "_epoch_file", "_epochs", "_guard", "_jitter_ms",
        "_owner", "_producer_history", "_producers", "_segments", "config",
    )  # fmt: skip

    def __init__(
        self,
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
        self._clock = clock
        self._bounds = bounds
        self._segments = segments
        self._epochs = history.cache
        self._epoch_file = history.file
        self._producer_history = producers
        self._producers = producers.states
        self._durability = durability
        self._guard = guard
        self._owner = owner
        self._jitter_ms = self._draw_jitter()

    def as_leader(
        self,
        buf: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        header: BatchHeader | None = None,
        log_append_time_ms: int = -1,
        guard: TransactionGuard | None = NO_VERIFICATION,
    ) -> AppendInfo:
        """Assign offsets and the epoch to validated batches and write them, all or none.

        Args:
            buf: whole batches; a writable buffer is patched in place, any other is not copied.
            header: the header of the only batch, if the caller has parsed it already.
            log_append_time_ms: returned in the result.
            guard: of a producer that begins a transaction with these batches; None if it was not
            verified, and then it must not begin one.

        Raises:
            ApiError: the errors of `ProducerStates.check`; RECORD_LIST_TOO_LARGE if the batches
            exceed segment.bytes.
            LogFailed: the disk refused, now or before.
            InvariantViolated: the epoch is lower than the log's.
        """
        log_guard = self._guard
        if log_guard.failure is not None:
            raise LogFailed(log_guard.directory, log_guard.failure)
        if leader_epoch < self._epochs.latest_epoch:
            raise InvariantViolated(
                f"{log_guard.directory}: append in epoch {leader_epoch} "
                f"after {self._epochs.latest_epoch}"
            )
        size = len(buf)
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit a segment of {self.config.segment_bytes}",
            )
        bounds = self._bounds
        first_offset = offset = bounds.log_end_offset
        if header is not None and (
            header.producer_id < 0
            or (origin is Origin.CLIENT and self._producers.continues(header))
        ):
            # Fast path: there is no sequence to check and no transaction marker.
            self._write_plain(buf, header, leader_epoch, size, now_ms)
            return AppendInfo(
                first_offset, bounds.log_end_offset - 1, header.max_timestamp,
                log_append_time_ms, bounds.log_start_offset,
            )  # fmt: skip
        headers = (header,) if header is not None else whole_batches(buf)
        duplicate = self._producers.check(headers, origin, guard, leader_epoch)
        if duplicate is not None:
            return AppendInfo(
                duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms,
                log_append_time_ms, bounds.log_start_offset, True,
            )  # fmt: skip
        for batch in headers:
            batch.base_offset = offset
            batch.leader_epoch = leader_epoch
            offset += batch.last_offset_delta + 1
        max_timestamp = self._write(headers, patched(buf, headers), size, now_ms)
        return AppendInfo(
            first_offset, offset - 1, max_timestamp, log_append_time_ms, bounds.log_start_offset
        )

    def check_fetched(self, buf: Buffer, *, max_epoch: int | None = None) -> list[BatchHeader]:
        """Return the headers that `as_follower` would write. Raises CorruptLog."""
        end = self._bounds.log_end_offset
        return judge_fetched(buf, max_epoch, end, self._epochs.latest_epoch)

    def as_follower(self, buf: Buffer, *, max_epoch: int | None = None) -> AppendInfo | None:
        """Write batches as the leader sent them, with their offsets and epochs.

        A truncated last batch is left out. So are all batches from the first one with an epoch
        above `max_epoch` on: a newer leader's batches belong to a newer fetch. Returns None if
        there is no whole batch.

        Raises:
            CorruptLog: a wrong CRC, an offset below the log end, an epoch below the latest.
            LogFailed: the disk refused, now or before.
        """
        self._guard.check()
        headers = self.check_fetched(buf, max_epoch=max_epoch)
        if not headers:
            return None
        now_ms = self._clock.now_ms()
        view = memoryview(buf)
        first, start, size, max_timestamp = 0, 0, 0, -1
        for at, batch in enumerate(headers):
            full = size + batch.size_bytes > self.config.segment_bytes
            # The indexes of one segment cannot express a higher offset.
            far = batch.last_offset - self._bounds.log_end_offset > MAX_RELATIVE
            if size and (full or far):
                part = [view[start : start + size]]
                stamp = self._write(headers[first:at], part, size, now_ms)
                first, start, size = at, start + size, 0
                max_timestamp = max(max_timestamp, stamp)
            size += batch.size_bytes
        stamp = self._write(headers[first:], [view[start : start + size]], size, now_ms)
        return AppendInfo(
            headers[0].base_offset,
            headers[-1].last_offset,
            max(max_timestamp, stamp),
            -1,
            self._bounds.log_start_offset,
        )

    def _write_plain(
        self, buf: Buffer, batch: BatchHeader, leader_epoch: int, size: int, now_ms: int
    ) -> None:
        """Write one batch that a leader appends, after its producer was checked.

        The batch must not end a transaction. Otherwise as `_write`.
        """
        bounds = self._bounds
        base_offset, max_timestamp = bounds.log_end_offset, batch.max_timestamp
        last_offset = base_offset + batch.last_offset_delta
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        try:
            segment = self._segment_for(base_offset, last_offset, size, max_timestamp, now_ms)
            if type(buf) is memoryview and not buf.readonly:
                patch(buf, base_offset, leader_epoch)
                position = segment.log.append(buf)
            else:
                position = segment.log.append_many(patched(buf, (batch,)))
        except OSError as error:
            self._guard.fail(error)
            raise LogFailed(self._guard.directory, error) from error
        segment.note(last_offset, position, size, max_timestamp)
        if leader_epoch > self._epochs.latest_epoch:
            self._epoch_file.begin(leader_epoch, base_offset)
        if batch.producer_id >= 0:
            self._apply_producer(segment, batch, None)
        bounds.log_end_offset = last_offset + 1
        self._segments.note_boundary(last_offset + 1, position + size)

    def _segment_for(
        self, base_offset: int, last_offset: int, size: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """Return the segment for the next batches, ready for the append. Raises OSError."""
        segment = self._segments.active
        if must_roll(
            segment, self.config, self._jitter_ms, size, max_timestamp, last_offset, now_ms
        ):
            # Roll at the log end: the leader's cleaner may have removed the offsets before the
            # first batch. A gap between segments would count as lost records after a crash.
            far = last_offset - self._bounds.log_end_offset > MAX_RELATIVE
            segment = self.roll(base_offset if far else None)
        segment.prepare()
        return segment

    def _write(
        self, headers: Sequence[BatchHeader], parts: Sequence[Buffer], size: int, now_ms: int
    ) -> int:
        """Write validated batches and replay them. Returns the highest timestamp."""
        max_timestamp = headers[0].max_timestamp
        if len(headers) > 1:
            max_timestamp = max([batch.max_timestamp for batch in headers])
        markers = end_markers(headers, parts)
        base_offset, last_offset = headers[0].base_offset, headers[-1].last_offset
        try:
            segment = self._segment_for(base_offset, last_offset, size, max_timestamp, now_ms)
            position = segment.log.append_many(parts)
        except OSError as error:
            self._guard.fail(error)
            raise LogFailed(self._guard.directory, error) from error
        for at, batch in enumerate(headers):
            batch_size = batch.batch_length + LENGTH_OVERHEAD_BYTES
            segment.note(
                batch.base_offset + batch.last_offset_delta,
                position,
                batch_size,
                batch.max_timestamp,
            )
            position += batch_size
            if batch.leader_epoch > self._epochs.latest_epoch:
                self._epoch_file.begin(batch.leader_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                self._apply_producer(segment, batch, markers.get(at) if markers else None)
        self._bounds.log_end_offset = last_offset + 1
        self._segments.note_boundary(last_offset + 1, position)
        return max_timestamp

    def _apply_producer(
        self, segment: Segment, batch: BatchHeader, marker: EndMarker | None
    ) -> None:
        completed = self._producers.apply(batch, batch.base_offset, marker)
        if completed is not None and completed.aborted:
            stable = self._producers.last_stable_offset_after(completed)
            try:
                segment.txn_index.append(AbortedTxn(*completed[:3], stable))
            except OSError as error:
                # The marker is in the log: recovery will write the entry.
                self._guard.fail(error)

    # Rolling ---------------------------------------------------------------------------------

    def _draw_jitter(self) -> int:
        limit = min(self.config.segment_jitter_ms, self.config.effective_segment_ms)
        return self._owner.roll_jitter_ms(limit) if limit > 0 else 0

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at the log end, or at a higher
        `base_offset`.

        An empty segment that already begins there is kept. Raises OSError.
        """
        bounds = self._bounds
        base = bounds.log_end_offset
        if base_offset is not None:
            base = max(base_offset, base)
        active = self._segments.active
        if active.base_offset == base and active.size_bytes == 0:
            return active
        active.seal()
        if bounds.cut_unflushed or bounds.checkpointed_recovery_point > bounds.recovery_point:
            # Recovery trusts closed segments below the checkpoint, which may be too high for a
            # while after a truncation. And truncated batches must not return below a new segment.
            self._durability.flush_blocking()
        self._producer_history.begin_snapshot(base)
        segment = self._segments.begin(base, self.config, self._clock.now_ms())
        self._jitter_ms = self._draw_jitter()
        self._owner.rolled()
        return segment
