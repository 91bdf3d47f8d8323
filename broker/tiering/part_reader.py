"""Shell: One read of a part of a log from the tier, and of the local records that follow it.

The batches read are verified by their own checksums against the segment's metadata, and limited to
the part of the segment that the replica's lineage shares (S1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.tiering.index_cache import IndexCache
from broker.tiering.read_memory import PART_BYTES_MAX, ReadMemory
from broker.tiering.windows import Place, Stream, Window, window_of
from protocol.errors import ApiError, ErrorCode
from storage.files import Files
from storage.log.errors import BelowLocalStart, OffsetOutOfRange
from storage.log.indexes import AbortedTxn
from storage.tiered.batches import own_batches
from storage.tiered.cache import SegmentCache, SharedSegment
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore
from storage.tiered.values import RemotePartition, RemoteSegment

if TYPE_CHECKING:
    from storage.log.log import Log

INDEX_SLACK_BYTES: Final = 16 << 10
"""Additional bytes to read. The index points to a batch before the requested one; the distance is
known from the next index entry. Behind the last entry it is about `index.interval.bytes`."""

CacheOf: TypeAlias = Callable[[RemotePartition], SegmentCache | None]


class PartRequest(NamedTuple):
    """A part of a log that a reader wants.

    Args:
        max_bytes: limit for the records, at least one batch; a part has a limit of its own.
    """

    stream: Stream
    log: Log
    offset: int
    max_bytes: int

    @property
    def size_bytes(self) -> int:
        """The number of bytes of records to read."""
        return min(max(self.max_bytes, 1), PART_BYTES_MAX)


class PartReader:
    """The reads of a broker, one part each."""

    def __init__(
        self,
        store: SegmentStore,
        indexes: IndexCache,
        cache_of: CacheOf,
        memory: ReadMemory,
        files: Files,
        *,
        running: Callable[[], int],
    ) -> None:
        """Set the sources of reads. `running` returns the number of reads that run now."""
        self._store = store
        self._indexes = indexes
        self._cache_of = cache_of
        self._memory = memory
        self._files = files
        self._running = running

    def cache(self, log: Log) -> SegmentCache | None:
        """Return a log's metadata cache, or None until it is complete enough to act on."""
        assert log.topic_id is not None
        return self._cache_of(RemotePartition(log.topic_id, log.partition, log.topic))

    def known_cache(self, log: Log) -> SegmentCache:
        """Return the metadata cache at this moment. Raises ApiError if it is not ready."""
        cache = self.cache(log)
        if cache is None:
            raise unavailable("the metadata of the tier is not complete yet")
        return cache

    async def read(self, part: PartRequest) -> Window:
        """Return the records from the requested offset on.

        Raises:
            ApiError: the metadata is not ready, the tier has no such offset, or it is below the
                log start.
            ObjectError: the store cannot be read.
            CorruptSegment, CorruptIndex: the segment or an index is invalid.
            OSError: a disk operation failed.
        """
        log, offset = part.log, part.offset
        while True:
            shared = self._find(log, offset)
            found = await self._read_in(shared, part, offset)
            if found is not None:
                break
            # The segment has no record from `offset` on: it was compacted before the topic was
            # tiered.
            offset = shared.offsets.last + 1
            if offset >= log.local_log_start_offset:
                found = await self._read_local(part, offset)
                break
        found = replace(found, first_offset=min(found.first_offset, part.offset))
        if not part.stream.committed:
            return found
        first, end = found.first_offset, found.last_offset + 1
        return replace(found, aborted=await self._aborted(log, first, end))

    def _find(self, log: Log, offset: int) -> SharedSegment:
        """Return the segment with `offset`. Raises ApiError without one, or if the offset is below
        the log start."""
        if not log.log_start_offset <= offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        shared = self.known_cache(log).find_on(lineage, offset)
        if shared is None:
            # Not OFFSET_OUT_OF_RANGE: a reader that restarted elsewhere because of it would lose
            # records.
            raise unavailable(f"the tier has no segment with offset {offset}")
        return shared

    async def _read_in(
        self, shared: SharedSegment, part: PartRequest, offset: int
    ) -> Window | None:
        """Return the batches of a segment from `offset` on, or None if it has none."""
        segment, last_shared = shared.segment, shared.offsets.last
        position, size = await self._range(segment, part, offset)
        while position < segment.size_bytes:
            data, checked = await self._store.read_log(
                segment, position, size, last_offset=last_shared, run=self._files.run
            )
            position += checked.whole_bytes
            found = window_of(data, checked, offset, Place(segment.segment_id, position))
            if found is not None:
                return found
            if not checked.whole_bytes and checked.cut_bytes <= size:
                break  # only batches that this log does not share are left
            size = max(size, checked.cut_bytes)
        return None

    async def _range(
        self, segment: RemoteSegment, part: PartRequest, offset: int
    ) -> tuple[int, int]:
        """Return the position in a segment to read from, and the number of bytes."""
        indexes = await self._indexes.get(segment)
        most = part.size_bytes
        end_before = self._memory.end_before(part.stream, offset)
        if end_before is None:
            position, begin = indexes.position(offset), indexes.beyond(offset)
            gap = 0 if begin is None or offset <= segment.start_offset else begin - position
            return position, most + max(INDEX_SLACK_BYTES, min(gap, PART_BYTES_MAX))
        position = end_before.position
        if end_before.segment_id != segment.segment_id:
            position = indexes.position(offset)
        size = most + INDEX_SLACK_BYTES
        if self._memory.has_room_for(self._running()):
            size = PART_BYTES_MAX
        end = indexes.begin_before(position + size)
        # A batch that would be incomplete is left to the next read.
        is_last = position + size >= segment.size_bytes
        return position, size if is_last or end <= position else end - position

    async def _read_local(self, part: PartRequest, offset: int) -> Window:
        """Return the records that follow on the local disk. Raises ApiError without any."""
        log = part.log
        end = log.last_stable_offset if part.stream.committed else log.high_watermark
        try:
            data = await log.read_cold(offset, part.size_bytes, max_offset=end)
        except BelowLocalStart as error:
            raise unavailable(str(error)) from None
        found = window_of(data, await self._files.run(own_batches, data), offset, None)
        if found is None:
            raise unavailable(f"there are no records from {offset} on")
        return found

    async def _aborted(self, log: Log, offset: int, end_offset: int) -> tuple[AbortedTxn, ...]:
        """Return the aborted transactions with records in [offset, end_offset). Their end markers
        may be much later, in the tier or on the local disk. Raises ApiError if the metadata is not
        ready."""
        found: dict[AbortedTxn, None] = {}
        while True:
            local_start, cache = log.local_log_start_offset, self.known_cache(log)
            lineage = Lineage(log.epochs.entries, log.log_end_offset)
            for shared in cache.with_aborted(lineage, offset):
                indexes = await self._indexes.get(shared.segment)
                for txn in indexes.aborted():
                    if txn.last_offset > shared.offsets.last:
                        break
                    if txn.last_offset >= offset and txn.first_offset < end_offset:
                        found[txn] = None
                    if txn.last_stable_offset >= end_offset:
                        return tuple(found)
            if local_start == log.local_log_start_offset:
                # Otherwise a local segment may have been deleted whose tier copy was not searched.
                found |= dict.fromkeys(log.reader.aborted_transactions(offset, end_offset))
                return tuple(found)


def unavailable(why: str) -> ApiError:
    """Return a retriable error for one partition."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
