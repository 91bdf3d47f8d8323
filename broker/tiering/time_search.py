"""Shell: Lookups of offsets by time in the tier (ListOffsets, KIP-405).

The search covers this log's segments that are only in the tier, by the timestamps in their
metadata. If a segment may have the record, its time index leads to the position, and parts of the
segment are read from there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.tiering.index_cache import IndexCache
from protocol.batch.header import iter_batches
from protocol.schema import Buffer
from storage.files import Files
from storage.log.timestamps import (
    LIES_MAX,
    TimestampOffset,
    as_header_says,
    look_into_batch,
    promises,
)
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import SegmentCache, SharedSegment
from storage.tiered.expiry import readable_from
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore

if TYPE_CHECKING:
    from storage.log.log import Log

PART_BYTES: Final = 1 << 20
SEGMENTS_PER_STEP: Final = 50
"""Segments per event-loop iteration: about a millisecond."""


class TimeSearch(NamedTuple):
    """One lookup. Its calls raise ObjectError, CorruptSegment, CorruptIndex or OSError if a segment
    or index cannot be read, and ApiError(INVALID_RECORD) at a record above
    `max.decompressed.message.bytes`."""

    store: SegmentStore
    indexes: IndexCache
    files: Files
    log: Log
    cache: SegmentCache

    async def first_at_or_after(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record below the local log start with this timestamp or a later one."""
        met, at = _Met(self.log, self.cache), 0
        while (shared := met.next(at)) is not None:
            if shared.segment.max_timestamp_ms >= timestamp_ms:
                found = await self._look_into(shared, timestamp_ms)
                if found is not None:
                    return found
            at = shared.offsets.last + 1
            await met.breathe()
        return None

    async def highest(self) -> TimestampOffset | None:
        """Return the first record below the local log start that has the highest timestamp
        there."""
        met, segments, at = _Met(self.log, self.cache), [], 0
        while (shared := met.next(at)) is not None:
            segments.append(shared)
            at = shared.offsets.last + 1
            await met.breathe()
        # The record with a segment's highest timestamp may be in a part that does not belong to
        # this log.
        segments.sort(key=lambda shared: -shared.segment.max_timestamp_ms)
        best: TimestampOffset | None = None
        for shared in segments:
            highest_ms = shared.segment.max_timestamp_ms
            if highest_ms < 0 or (best is not None and best.timestamp >= highest_ms):
                break
            found = await self._look_into(shared, highest_ms)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
        return best

    async def _look_into(self, shared: SharedSegment, timestamp_ms: int) -> TimestampOffset | None:
        segment, log = shared.segment, self.log
        indexes = await self.indexes.get(segment)
        first = max(shared.offsets.first, log.log_start_offset)
        position = indexes.position(max(first, indexes.offset_before(timestamp_ms)))
        last = min(shared.offsets.last, log.local_log_start_offset - 1)
        size, lies, limit = PART_BYTES, 0, log.config.max_decompressed_message_bytes
        while position < segment.size_bytes:
            data, checked = await self.store.read_log(
                segment, position, size, last_offset=last, run=self.files.run
            )
            whole = data[: checked.whole_bytes]
            found, lies = await self.files.run(_find, whole, timestamp_ms, first, lies, limit)
            if found is not None:
                return found
            if not checked.whole_bytes and checked.cut_bytes <= size:
                return None
            position += checked.whole_bytes
            size = max(size, checked.cut_bytes)
        return None


class _Met:
    """The copies that a reader from the log start on would read, in order."""

    def __init__(self, log: Log, cache: SegmentCache) -> None:
        self._log = log
        self._cache = cache
        self._lineage = Lineage(log.epochs.entries, log.log_end_offset)
        self._count = 0

    def next(self, offset: int) -> SharedSegment | None:
        """Return the copy with this offset, or with the log start if that is above it by now.
        Returns None if the log is local from there on. An earlier leader may have deleted more than
        this log has learned. Raises CorruptSegment if a copy is missing: a later one must not be
        used instead (S8)."""
        at, local_start = max(offset, self._log.log_start_offset), self._log.local_log_start_offset
        if at >= local_start:
            return None
        cache, lineage = self._cache, self._lineage
        shared = cache.find_on(lineage, at)
        if shared is None:
            readable = readable_from(
                cache, lineage, log_start_offset=at, local_start_offset=local_start
            )
            if readable >= local_start:
                return None
            shared = cache.find_on(lineage, readable)
        if shared is None:
            raise CorruptSegment(f"the tier has no segment with offset {at}")
        return shared

    async def breathe(self) -> None:
        """Yield to other tasks every `SEGMENTS_PER_STEP` segments."""
        self._count += 1
        if self._count % SEGMENTS_PER_STEP == 0:
            await asyncio.sleep(0)


def _find(
    whole: Buffer, timestamp_ms: int, start_offset: int, lies: int, record_bytes_max: int
) -> tuple[TimestampOffset | None, int]:
    """Return the record, and the number of batches so far whose headers promised one falsely. After
    too many of those the header is believed."""
    for header, at in iter_batches(whole):
        if not promises(header, timestamp_ms, start_offset):
            continue
        if lies > LIES_MAX and header.base_offset >= start_offset:
            return as_header_says(header), lies
        batch = bytes(whole[at : at + header.size_bytes])
        found = look_into_batch(batch, header, timestamp_ms, start_offset, record_bytes_max).found
        if found is not None:
            return found, lies
        lies += 1
    return None, lies
