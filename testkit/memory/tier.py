"""A tier in memory: segments of real logs, copied explicitly, and their metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from broker.tiering.held import Part
from broker.tiering.index_cache import IndexCache
from broker.tiering.read_memory import KEPT_MS
from broker.tiering.reader import RemoteRead, RemoteReader
from broker.tiering.settings import QuotaSettings, ReadSettings
from broker.tiering.windows import Cut, Window
from protocol.errors import ApiError
from protocol.ids import TopicId
from protocol.schema import Buffer
from storage.log.log import Log
from storage.log.segment import Segment
from storage.objects import FileRange, MemoryObjects, Objects
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentSources, SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.values import RemotePartition, RemoteSegment, SegmentUpdate, TierRecord
from testkit.memory.broker import Harness, batch, settle
from testkit.records.tier import segment_id


def partition_of(log: Log) -> RemotePartition:
    return RemotePartition(TopicId(bytes(log.topic_id or b"")), log.partition, log.topic)


class MemoryTier:
    """A tier with its metadata; `cache_of` replaces a broker's journal."""

    def __init__(self, objects: Objects | None = None) -> None:
        """`objects`, if given, wrap `bucket`."""
        self.bucket = MemoryObjects()
        self.store = SegmentStore(objects or self.bucket)
        self.caches: dict[tuple[TopicId, int], SegmentCache] = {}
        self._direct = SegmentStore(self.bucket)
        self._ids = 0

    def cache_of(self, partition: RemotePartition) -> SegmentCache | None:
        return self.caches.get(partition.identity)

    def apply(self, record: TierRecord) -> None:
        """Apply a record as if the metadata topic had it."""
        partition = getattr(record, "partition")  # noqa: B009 - not of snapshots
        cache = self.caches.setdefault(partition.identity, SegmentCache(partition))
        refusal = cache.refusal(record)
        assert not refusal, refusal
        cache.apply(cache.next_offset, record)

    def state(self, segment: RemoteSegment, state: SegmentState) -> None:
        """Move the segment to its next state."""
        self.apply(SegmentUpdate(
            partition=segment.partition, segment_id=segment.segment_id, broker_id=1,
            event_timestamp_ms=0, state=state,
        ))  # fmt: skip

    async def copy(self, log: Log) -> list[RemoteSegment]:
        """Copy all closed segments that no finished copy covers. Returns: the copies."""
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        cache = self.caches.setdefault(partition_of(log).identity, SegmentCache(partition_of(log)))
        copied = []
        closed = list(log.segments)
        for one, following in zip(closed, closed[1:], strict=False):
            first, last = max(one.base_offset, log.log_start_offset), following.base_offset - 1
            if not cache.covers(lineage, first, last):
                copied.append(await self._copy(log, one, last, lineage))
            log.bounds.copied_to = last + 1
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
            index_interval_bytes=log.config.index_interval_bytes,
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
    """Delete the local segments that were copied."""
    tiered = replace(log.config, remote_storage_enable=True)
    log.trimming.config = replace(tiered, local_retention_bytes=0)
    log.retention(now_ms)
    log.config = log.trimming.config = tiered


async def tiered(tier: MemoryTier, log: Log) -> list[RemoteSegment]:
    """Roll the log, copy all closed segments, and delete all of them from the disk."""
    log.roll()
    copied = await tier.copy(log)
    drop_local(log)
    assert log.local_log_start_offset == log.log_end_offset
    return copied


MIB = 1 << 20
READS = ReadSettings(
    at_once=2,
    pending_max=3,
    fetch_wait_ms=500,
    list_offsets_timeout_ms=30_000,
    index_cache_bytes=MIB,
    index_cache_ttl_ms=-1,
)
NO_QUOTA = QuotaSettings(bytes_per_second=2**63 - 1, windows=11, window_seconds=1)


class HeldStore:
    """A store whose reads of log parts wait until `let_go`."""

    def __init__(self, backing: Objects) -> None:
        self._backing = backing
        self.holding = False
        self.waiting: list[asyncio.Future[None]] = []
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backing, name)

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        if key.endswith(".log"):
            self.sizes.append(size_bytes)
            if self.holding:
                gate = asyncio.get_running_loop().create_future()
                self.waiting.append(gate)
                await gate
        return Part(
            await self._backing.get(key, start, size_bytes)
        )  # a copy that supports weak references

    async def let_go(self, count: int = 1) -> None:
        for gate in self.waiting[:count]:
            gate.set_result(None)
        del self.waiting[:count]
        await settle()


def memory_reader(
    tier: MemoryTier,
    harness: Harness,
    *,
    settings: Callable[[], ReadSettings] = lambda: READS,
    quota: Callable[[], QuotaSettings] = lambda: NO_QUOTA,
) -> RemoteReader:
    """Let the broker of `harness` read `tier` from now on."""
    indexes = IndexCache(
        harness.files,
        "/data",
        tier.store,
        harness.supervisor,
        monotonic_ms=harness.clock.monotonic_ms,
        max_bytes=lambda: settings().index_cache_bytes,
        ttl_ms=lambda: settings().index_cache_ttl_ms,
    )
    indexes.load()
    reader = RemoteReader(
        tier.store,
        indexes,
        tier.cache_of,
        settings=settings,
        quota=quota,
        files=harness.files,
        supervisor=harness.supervisor,
        clock=harness.clock,
    )
    # The context is created before there is a tier to put into it.
    object.__setattr__(harness.context, "tier", SimpleNamespace(reader=reader))
    return reader


class TierRoom:
    """A topic whose closed segments are in the tier only."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        topic: dict[str, Any] | None = None,
        props: dict[str, str] | None = None,
        **configs: str,
    ) -> None:
        """`topic` is for `Harness.create_topic`, `configs` are the topic's, `props` the node's."""
        self.tier = MemoryTier()
        self.held = HeldStore(self.tier.bucket)
        self.tier.store.objects = self.held
        self.h = Harness(**(props or {}))  # type: ignore[arg-type]
        self.h.create_topic(
            partitions=partitions,
            **(topic or {}),
            configs={name.replace("_", "."): value for name, value in configs.items()},
        )
        self.settings = READS
        self.quota = NO_QUOTA
        self.reader = memory_reader(
            self.tier, self.h, settings=lambda: self.settings, quota=lambda: self.quota
        )
        self.indexes = self.reader.indexes

    @property
    def log(self) -> Log:
        return self.h.partition().log

    def log_of(self, index: int) -> Log:
        return self.h.partition(index=index).log

    def produce(self, *values: bytes, index: int = 0) -> None:
        for value in values:
            assert self.h.produce(batch(value), index=index).error_code == 0

    async def fill(self, *segments: tuple[bytes, ...], index: int = 0) -> None:
        """Write segments of these values, a batch each, and move all of them to the tier."""
        for values in segments:
            self.produce(*values, index=index)
            await tiered(self.tier, self.log_of(index))

    async def window(self, offset: int, max_bytes: int = MIB, *, committed: bool = False) -> Window:
        """Return the window of a read, and let it expire, so that the next read does not use it."""
        one = self.reader.read(self.log, offset, max_bytes, committed=committed)
        await done(one)
        if one.error is not None:
            raise ApiError(one.error)
        assert one.window is not None
        self.h.clock.advance(int(KEPT_MS) + 1)
        return one.window

    async def read(self, offset: int, max_bytes: int = MIB, *, committed: bool = False) -> Cut:
        """Return the part of a window that a fetch returns."""
        cut = (await self.window(offset, max_bytes, committed=committed)).cut(offset, max_bytes)
        assert cut is not None
        return cut


async def done(one: RemoteRead) -> None:
    if not one.done:
        over = asyncio.get_running_loop().create_future()
        one.listen(over.set_result)
        await asyncio.wait_for(over, 10)
