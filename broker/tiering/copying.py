"""Shell: Copies of a leader's closed segments into the tier (KIP-405; S2, S3, S5).

One segment at a time: flush, COPY_STARTED, the objects with the manifest last, a check that this
broker still leads, COPY_FINISHED. Each attempt has an id of its own. Any attempt that ends early
leaves an unfinished copy, which the current leader deletes (`expiring`). Its objects are deleted at
once if this broker knows that no accepted record declares them complete.

Only the last record is written again until its result is known. Otherwise a copy could be finished
for every broker but its leader, which would copy the segment again and later delete one copy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from broker.tiering.led import ClosedSegments, Led, TierMetadata, seen_by
from broker.tiering.quota import RateLimit
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.sources import SegmentGone, find_segment, opened, producer_snapshot
from protocol.ids import random_uuid
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.slices import result_in_slices
from storage.log.log import Log
from storage.log.segment import Segment
from storage.objects import ObjectError
from storage.tiered.batches import WrongTimes
from storage.tiered.cache import SegmentCache
from storage.tiered.copying import Copyable, CopyLag, CopyPlan, Delay, plan_copy_steps
from storage.tiered.segment_store import SegmentSources, SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment, SegmentUpdate

COPY: Final = "copy"
PLANNED_MAX: Final = 2
"""A round copies one segment, and reports whether there are more."""
FINISH_PAUSE_MS: Final = 1_000.0
"""Backoff between two attempts to write COPY_FINISHED."""

_log = get_logger("broker.tier")


class CopyRefused(Exception):
    """The metadata topic refuses the copy; another one may be accepted."""


class Copier:
    """Copier for all partitions that this broker leads."""

    def __init__(
        self,
        *,
        node_id: int,
        metadata: TierMetadata,
        store: SegmentStore,
        limit: RateLimit,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._store = store
        self._limit = limit
        self._clock = clock
        self._rng = rng

    async def copy_once(self, led: Led) -> bool:
        """Copy the oldest segment that may be copied; return whether there is another.

        Raises:
            ObjectError, CorruptSegment, ManifestBroken, OSError, LogFailed, CorruptLog,
                CorruptIndex, CorruptSnapshot, TierUnavailable, CopyRefused: the copy failed; the
                caller retries it later.
        """
        cache = led.known(self._metadata)
        if cache is None:
            return False
        plan = await self._plan(led, cache)
        if not plan.segments:
            return False
        await self._limit.wait()
        if not led.holds:
            return False
        try:
            await self._copy(led, plan.segments[0])
        except SegmentGone:
            return True
        return len(plan.segments) > 1

    async def _plan(self, led: Led, cache: SegmentCache) -> CopyPlan:
        log = led.replica.log
        if not log.config.copies:
            led.backlog.copy_bytes = led.backlog.copy_segments = 0
            return CopyPlan(())
        seen = seen_by(log, cache)
        if led.idle.get(COPY) == seen:
            return CopyPlan(())
        segments = list(log.segments)
        planning = plan_copy_steps(
            cache,
            led.lineage,
            ClosedSegments(segments),
            log_start_offset=log.log_start_offset,
            last_stable_offset=log.last_stable_offset,
            delay=self._delay(log, segments),
            most=PLANNED_MAX,
        )
        plan = await result_in_slices(planning, self._clock)
        if not plan.segments and not plan.delayed:
            led.idle[COPY] = seen
        backlog = led.backlog
        backlog.copy_bytes, backlog.copy_segments = plan.lag_bytes, plan.lag_segments
        if plan.blocked and plan.blocked != backlog.blocked:
            _log.warning("a segment cannot be copied", partition=str(led), why=plan.blocked)
        backlog.blocked = plan.blocked
        return plan

    def _delay(self, log: Log, segments: Sequence[Segment]) -> Delay:
        return Delay(
            CopyLag(log.config.effective_copy_lag_ms, log.config.effective_copy_lag_bytes),
            self._clock.now_ms(),
            segments[-1].size_bytes,
            lambda place: segments[place].largest_timestamp_ms(),
        )

    async def _copy(self, led: Led, copyable: Copyable) -> None:
        log = led.replica.log
        next_offset = copyable.segment.next_offset
        if log.recovery_point < next_offset:
            await log.flush()
        snapshot = await producer_snapshot(log, next_offset, self._clock.now_ms())
        if not led.holds or log.closed:
            return
        segment = find_segment(log, copyable)
        with opened(log, segment, copyable, led.lineage, snapshot) as sources:
            begun = self._described(led, segment, copyable, sources)
            led.being_copied.add(begun.segment_id)
            try:
                await self._carry_out(led, begun, sources)
            except WrongTimes:
                segment.doubt_times()
                raise
            finally:
                led.being_copied.discard(begun.segment_id)

    def _described(
        self, led: Led, segment: Segment, copyable: Copyable, sources: SegmentSources
    ) -> RemoteSegment:
        return RemoteSegment(
            partition=led.partition,
            segment_id=random_uuid(self._rng),
            start_offset=copyable.segment.base_offset,
            end_offset=copyable.segment.next_offset - 1,
            broker_id=self._node_id,
            max_timestamp_ms=segment.max_timestamp()[0],
            event_timestamp_ms=self._clock.now_ms(),
            epochs=copyable.epochs,
            size_bytes=copyable.segment.size_bytes,
            txn_index_empty=sources.txn_index is None,
        )

    async def _carry_out(self, led: Led, begun: RemoteSegment, sources: SegmentSources) -> None:
        outcome = await self._metadata.write(begun)
        if outcome.refusal:
            raise CopyRefused(f"{begun}: {outcome.refusal}")
        led.counters.copy_requests += 1
        self._limit.record(begun.size_bytes)
        try:
            await self._store.copy(begun, sources)
        except Exception:
            led.counters.copy_errors += 1
            await self._take_back(led, begun)
            raise
        if not led.holds or led.replica.log.closed:
            await self._take_back(led, begun)
            return
        if await self._finish(led, begun):
            led.counters.copy_bytes += begun.size_bytes
            led.backlog.copy_bytes -= begun.size_bytes
            led.backlog.copy_segments -= 1
            _log.info("segment copied", segment=str(begun), bytes=begun.size_bytes)

    async def _finish(self, led: Led, begun: RemoteSegment) -> bool:
        """Write COPY_FINISHED; return whether the copy counts. If the result is unknown when this
        broker stops leading, the objects stay: the copy may be finished."""
        finished = SegmentUpdate(
            partition=begun.partition,
            segment_id=begun.segment_id,
            broker_id=self._node_id,
            event_timestamp_ms=self._clock.now_ms(),
            state=SegmentState.COPY_FINISHED,
        )
        while led.holds:
            try:
                outcome = await self._metadata.write(finished)
            except TierUnavailable as error:
                _log.warning("whether a copy is finished is not known", why=str(error))
                await asyncio.sleep(FINISH_PAUSE_MS / 1000.0)
                continue
            if not outcome.refusal:
                return True
            _log.warning("a copy is not wanted any more", why=outcome.refusal)
            await self._take_back(led, begun)
            return False
        return False

    async def _take_back(self, led: Led, begun: RemoteSegment) -> None:
        """Delete objects that no record declares complete; any that are left are found as an
        unfinished copy."""
        led.taken_back.add(begun.segment_id)
        try:
            await self._store.delete(begun)
        except ObjectError as error:
            _log.warning("objects of a copy stay for now", segment=str(begun), error=str(error))
