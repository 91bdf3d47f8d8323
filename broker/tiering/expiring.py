"""Shell: Deletion of remote segments that a leader's plan names (KIP-405; S3, S4, S10).

The new log start is on disk before the first DELETE_STARTED is written: after a crash no log may
offer deleted records (KAFKA-15352). Then one segment at a time: DELETE_STARTED, the objects,
DELETE_FINISHED. A later pass, here or on another broker, completes unfinished deletions.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

from broker.tiering.led import Led, TierMetadata, local_segments, seen_by
from runtime.clock import Clock
from runtime.log import get_logger
from storage.log.config import LogConfig
from storage.objects import ObjectError
from storage.tiered.cache import SegmentCache
from storage.tiered.copying import local_only_bytes
from storage.tiered.expiry import (
    Deletion,
    ExpiryPlan,
    Retention,
    another_leads,
    plan_expiry,
    readable_from,
)
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.steady_time import SteadyTime
from storage.tiered.values import SegmentUpdate

EXPIRY: Final = "expiry"

_log = get_logger("broker.tier")


class Expirer:
    """Expirer for all partitions that this broker leads.

    Args:
        save_log_starts: makes the log starts durable as they are when it is called. Raises OSError
            if a disk operation fails.
    """

    def __init__(
        self,
        *,
        node_id: int,
        metadata: TierMetadata,
        store: SegmentStore,
        save_log_starts: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._store = store
        self._save_log_starts = save_log_starts
        self._clock = clock
        self._time = SteadyTime()

    async def expire_once(self, led: Led) -> bool:
        """Delete all segments that have expired by now. Always returns False: there is nothing more
        to do before a later pass.

        Raises:
            ObjectError, OSError, TierUnavailable: a deletion failed; the caller retries it later.
        """
        cache = led.known(self._metadata)
        if cache is None:
            return False
        log = led.replica.log
        before, now_ms = log.log_start_offset, self._now_ms()
        seen = seen_by(log, cache, led.being_copied)
        if led.idle.get(EXPIRY) == seen and now_ms < led.idle_until_ms:
            return False
        if another_leads(cache, led.epoch):
            return False
        readable = readable_from(
            cache,
            led.lineage,
            log_start_offset=before,
            local_start_offset=log.local_log_start_offset,
        )
        log.advance_log_start(min(readable, log.high_watermark))
        began_ms = self._clock.monotonic_ms()
        plan = self._plan(led, cache, now_ms)
        _count(led, cache, plan)
        led.backlog.size_ms = self._clock.monotonic_ms() - began_ms
        log.advance_log_start(plan.log_start_offset)
        if not plan.deletions and log.log_start_offset == before:
            until_ms = plan.stands_until_ms
            led.idle[EXPIRY], led.idle_until_ms = seen, math.inf if until_ms is None else until_ms
            return False
        await self._save_log_starts()
        for deletion in plan.deletions:
            if not await self._delete(led, deletion):
                break
            led.backlog.delete_segments -= 1
            led.backlog.delete_bytes -= deletion.segment.size_bytes
        return False

    def _now_ms(self) -> int:
        return self._time.now_ms(self._clock.now_ms(), self._clock.monotonic_ms())

    def _plan(self, led: Led, cache: SegmentCache, now_ms: int) -> ExpiryPlan:
        log, lineage = led.replica.log, led.lineage
        start = log.log_start_offset
        return plan_expiry(
            cache,
            lineage,
            _retention(log.config),
            now_ms=now_ms,
            log_start_offset=start,
            local_start_offset=log.local_log_start_offset,
            high_watermark=log.high_watermark,
            local_only_bytes=local_only_bytes(
                cache, lineage, local_segments(log), log_start_offset=start
            ),
            being_copied=led.being_copied,
            taken_back=led.taken_back,
        )

    async def _delete(self, led: Led, deletion: Deletion) -> bool:
        """Delete one segment. Returns: whether the next deletion of the plan may follow."""
        segment, reason = deletion
        known = led.known(self._metadata)
        found = known.get(segment.segment_id) if known is not None else None
        if known is None or another_leads(known, led.epoch):
            return False  # another broker leads, or the metadata must be read again
        if found is None:
            return True  # deleted in the meantime
        if found.state is not segment.state:
            return True  # the segment's state has changed since the plan was made
        _log.info("segment deleted", segment=str(segment), reason=reason.value)
        if found.state is not SegmentState.DELETE_STARTED:
            outcome = await self._metadata.write(self._update(led, deletion, started=True))
            if outcome.refusal:
                _log.warning(
                    "a segment cannot be deleted", segment=str(segment), why=outcome.refusal
                )
                return True
        led.counters.delete_requests += 1
        try:
            await self._store.delete(segment)
        except ObjectError:
            led.counters.delete_errors += 1
            raise
        await self._metadata.write(self._update(led, deletion, started=False))
        led.taken_back.discard(segment.segment_id)
        return True

    def _update(self, led: Led, deletion: Deletion, *, started: bool) -> SegmentUpdate:
        return SegmentUpdate(
            partition=led.partition,
            segment_id=deletion.segment.segment_id,
            broker_id=self._node_id,
            event_timestamp_ms=self._clock.now_ms(),
            state=SegmentState.DELETE_STARTED if started else SegmentState.DELETE_FINISHED,
        )


def _retention(config: LogConfig) -> Retention:
    if not config.deletes:
        return Retention()
    return Retention(ms=config.retention_ms, bytes=config.retention_bytes)


def _count(led: Led, cache: SegmentCache, plan: ExpiryPlan) -> None:
    backlog = led.backlog
    backlog.delete_segments = len(plan.deletions)
    backlog.delete_bytes = sum(one.segment.size_bytes for one in plan.deletions)
    backlog.remote_segments = len(cache)
    backlog.remote_bytes = sum(one.size_bytes for one in cache.finished())
