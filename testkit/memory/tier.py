"""A tier in memory: segments of real logs, copied by hand, and their metadata."""

from __future__ import annotations

from dataclasses import replace

from protocol.ids import TopicId
from storage.log.log import Log
from storage.log.segment import Segment
from storage.objects import FileRange, MemoryObjects, Objects
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentSources, SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.values import RemotePartition, RemoteSegment, SegmentUpdate, TierRecord
from testkit.records.tier import segment_id


def partition_of(log: Log) -> RemotePartition:
    return RemotePartition(TopicId(bytes(log.topic_id or b"")), log.partition, log.topic)


class MemoryTier:
    """`cache_of` is what a broker's journal would be asked."""

    def __init__(self, objects: Objects | None = None) -> None:
        """`objects` stand over `bucket`, where given."""
        self.bucket = MemoryObjects()
        self.store = SegmentStore(objects or self.bucket)
        self.caches: dict[tuple[TopicId, int], SegmentCache] = {}
        self._direct = SegmentStore(self.bucket)
        self._ids = 0

    def cache_of(self, partition: RemotePartition) -> SegmentCache | None:
        return self.caches.get(partition.identity)

    def apply(self, record: TierRecord) -> None:
        """The topic has this record now."""
        partition = getattr(record, "partition")  # noqa: B009 - not of snapshots
        cache = self.caches.setdefault(partition.identity, SegmentCache(partition))
        refusal = cache.refusal(record)
        assert not refusal, refusal
        cache.apply(cache.next_offset, record)

    def state(self, segment: RemoteSegment, state: SegmentState) -> None:
        """The segment's next state."""
        self.apply(SegmentUpdate(
            partition=segment.partition, segment_id=segment.segment_id, broker_id=1,
            event_timestamp_ms=0, state=state,
        ))  # fmt: skip

    async def copy(self, log: Log) -> list[RemoteSegment]:
        """All closed segments that no finished copy covers."""
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        cache = self.caches.setdefault(partition_of(log).identity, SegmentCache(partition_of(log)))
        copied = []
        closed = list(log.segments)
        for one, following in zip(closed, closed[1:], strict=False):
            first, last = max(one.base_offset, log.log_start_offset), following.base_offset - 1
            if not cache.covers(lineage, first, last):
                copied.append(await self._copy(log, one, last, lineage))
            log.copied_to = last + 1
        return copied

    async def _copy(self, log: Log, one: Segment, last: int, lineage: Lineage) -> RemoteSegment:
        self._ids += 1
        aborted = log.files.read(one.txn_index.path) if one.txn_index.entries() else None
        segment = RemoteSegment(
            partition=partition_of(log),
            segment_id=segment_id(self._ids),
            start_offset=one.base_offset,
            end_offset=last,
            broker_id=1,
            max_timestamp_ms=one.max_timestamp()[0],
            event_timestamp_ms=0,
            epochs=lineage.epochs_of(max(one.base_offset, log.log_start_offset), last),
            size_bytes=one.size_bytes,
            txn_index_empty=aborted is None,
        )
        self.apply(segment)
        one.seal()
        sources = SegmentSources(
            log=FileRange(log.files, one.log, 0, one.size_bytes),
            offset_index=_content(log, one.offset_index.path),
            time_index=_content(log, one.time_index.path),
            txn_index=aborted,
            producer_snapshot=_content(log, log.snapshots.path(last + 1)),
            epochs=lineage.up_to(last),
        )
        await self._direct.copy(segment, sources)
        self.state(segment, SegmentState.COPY_FINISHED)
        return segment

    async def delete(self, segment: RemoteSegment) -> None:
        self.state(segment, SegmentState.DELETE_STARTED)
        await self._direct.delete(segment)
        self.state(segment, SegmentState.DELETE_FINISHED)


def _content(log: Log, path: str) -> bytes:
    return log.files.read(path) if log.files.exists(path) else b""


def drop_local(log: Log, now_ms: int = 0) -> None:
    """What was copied leaves the disk."""
    before = log.config
    log.config = replace(before, remote_storage_enable=True, local_retention_bytes=0)
    log.retention(now_ms)
    log.config = replace(before, remote_storage_enable=True)


async def tiered(tier: MemoryTier, log: Log) -> list[RemoteSegment]:
    """Closes the last segment, copies all, and keeps none of it on the disk."""
    log.roll()
    copied = await tier.copy(log)
    drop_local(log)
    assert log.local_log_start_offset == log.log_end_offset
    return copied


__all__ = ["MemoryTier", "drop_local", "partition_of", "tiered"]
