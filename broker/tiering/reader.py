"""Shell: reads of consumers from the tier (KIP-405).

A read begins when a fetch asks for it, and goes on when that fetch is answered without it: the next
fetch of the same offset finds it under way or done. Else a store slower than a fetch may wait would
never be read at all. A fetch that takes what was read has the part behind it read ahead, if nobody
waits for the store.

Memory is bounded whatever is asked for: so many reads go on at once, each of one part, so many wait
for their turn and hold nothing, and what is done is kept for a time and up to a size. The rest is
refused, with an error that clients try again after. What was sent counts until it has left for the
kernel (`held.py`): when clients that do not fetch their answers hold too much, nothing is read
until they do or are gone, as when a quota is used up.

What is read is checked by its batches' own checksums against the segment's metadata, and cut to
what the replica's lineage shares with the segment (S1). It is judged once more by `holds` when it
is sent: the log may have been cut meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.tiering.held import HeldBuffers, Part
from broker.tiering.index_cache import IndexCache
from broker.tiering.quota import RateLimit
from broker.tiering.settings import QuotaSettings, ReadSettings
from broker.tiering.time_search import TimeSearch
from broker.tiering.turns import Turns
from protocol.batch.header import iter_batches
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.errors import BelowLocalStart, OffsetOutOfRange
from storage.log.indexes import AbortedTxn, CorruptIndex
from storage.log.timestamps import TimestampOffset
from storage.objects.port import ObjectError
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import NO_REMOTE_END, RemoteEnd, SegmentCache, SharedSegment
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore
from storage.tiered.values import RemotePartition

if TYPE_CHECKING:
    from storage.log.log import Log

PART_BYTES_MAX: Final = 4 << 20
"""What a read may bring at most, but for a first batch that is larger."""
KEPT_BYTES_MAX: Final = 64 << 20
HELD_BYTES_MAX: Final = 256 << 20
"""What is kept and what clients do not fetch, together."""
KEPT_MS: Final = 30_000.0
"""How long what was read stays for a fetch that takes it."""
SWEEP_S: Final = 30.0
INDEX_SLACK_BYTES: Final = 16 << 10
"""The index leads to a batch before the one that is wanted, about `index.interval.bytes` before."""

_log = get_logger("broker.tiering.reader")

CacheOf: TypeAlias = Callable[[RemotePartition], SegmentCache | None]


class _Key(NamedTuple):
    """What tells reads apart."""

    topic_id: bytes
    partition: int
    offset: int
    committed: bool


class RemoteData(NamedTuple):
    """Whole batches, from the one that has the offset asked for."""

    records: Buffer
    """A part of what the store answered, as a rule."""
    last_offset: int
    last_epoch: int
    held_bytes: int
    """What it keeps in memory: the answer."""
    aborted: tuple[AbortedTxn, ...] = ()
    """Aborted transactions that overlap them; only for who reads what is committed."""


class RemoteRead:
    """One read, under way or done: then `data` is there, or `error`: a code, since an exception
    holds all that it passed through."""

    __slots__ = ("_listeners", "data", "done_ms", "error", "key", "log", "max_bytes")

    def __init__(self, key: _Key, log: Log, max_bytes: int) -> None:
        self.key = key
        self.log = log
        self.max_bytes = max_bytes
        self.data: RemoteData | None = None
        self.error: ErrorCode | None = None
        self.done_ms = -1.0
        self._listeners: dict[Callable[[RemoteRead], None], None] = {}

    @property
    def done(self) -> bool:
        return self.data is not None or self.error is not None

    @property
    def wanted(self) -> bool:
        """Whether a fetch waits for it."""
        return bool(self._listeners)

    def listen(self, listener: Callable[[RemoteRead], None]) -> None:
        """Calls `listener` once, when the read is done; never from within this call."""
        self._listeners[listener] = None

    def leave(self, listener: Callable[[RemoteRead], None]) -> None:
        self._listeners.pop(listener, None)

    def finish(self, result: RemoteData | ErrorCode, now_ms: float) -> None:
        """Only the reader calls this."""
        if isinstance(result, RemoteData):
            self.data = result
        else:
            self.error = result
        self.done_ms = now_ms
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener(self)


@dataclass(slots=True)
class ReadCounters:
    """Of one topic; for the metrics."""

    requests: int = 0
    errors: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Books:
    """Reads by their key: what goes on, what waits, what is done and kept, oldest first."""

    running: dict[_Key, RemoteRead] = field(default_factory=dict)
    pending: deque[RemoteRead] = field(default_factory=deque)
    known: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Running and pending."""
    kept: dict[_Key, RemoteRead] = field(default_factory=dict)
    kept_bytes: int = 0
    lookups: int = 0
    """Look-ups of offsets by time that go on or wait."""


class RemoteReader:
    """All remote reads of a broker."""

    def __init__(
        self,
        store: SegmentStore,
        indexes: IndexCache,
        cache_of: CacheOf,
        *,
        settings: Callable[[], ReadSettings],
        quota: Callable[[], QuotaSettings],
        files: Files,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        """`cache_of` is `Journal.cache`. Settings are asked for each time: they are dynamic, but
        for the number and size of the quota's windows."""
        self.indexes = indexes
        self.counters: dict[str, ReadCounters] = {}
        self._store = store
        self._cache_of = cache_of
        self._settings = settings
        self._limit = RateLimit(quota, clock)
        self._files = files
        self._supervisor = supervisor
        self._clock = clock
        self._quiet = RateLimited(clock, 10_000)
        self._books = _Books()
        self._held = HeldBuffers()
        self._lookups = Turns(lambda: settings().at_once)
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    # --- what a fetch asks ----------------------------------------------------------------------

    @property
    def fetch_wait_ms(self) -> int:
        """After so long a fetch is answered without what has not come."""
        return self._settings().fetch_wait_ms

    @property
    def list_offsets_timeout_ms(self) -> int:
        """For requests that name none."""
        return self._settings().list_offsets_timeout_ms

    @property
    def pending(self) -> int:
        """Reads that wait for their turn."""
        return len(self._books.pending)

    @property
    def running(self) -> int:
        return len(self._books.running)

    @property
    def kept_bytes(self) -> int:
        """What was read and not taken yet."""
        return self._books.kept_bytes

    def reconfigured(self) -> None:
        """The settings are others."""
        self._lookups.reconfigured()
        self._pump()

    def throttle_ms(self) -> float:
        """How long nothing more should be read, by the quota of all reads; 0.0 for none."""
        return self._limit.pause_ms()

    @property
    def has_room(self) -> bool:
        """Whether more may be read now, by the quota and by what is in memory."""
        if self.throttle_ms() > 0:
            return False
        self._forget_old()
        return self._held.bytes < HELD_BYTES_MAX

    def read(self, log: Log, offset: int, max_bytes: int, *, committed: bool) -> RemoteRead:
        """The read from `offset` on, which lies below the local log start.

        Args:
            max_bytes: of the records, at least one batch; the reader has a limit of its own.
            committed: with the aborted transactions that a read_committed reader must skip.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR when too many reads wait.
        """
        assert log.topic_id is not None
        key = _Key(log.topic_id, log.partition, offset, committed)
        books, settings = self._books, self._settings()
        self._forget_old()
        found = books.known.get(key) or self._take_kept(key, log)
        if found is not None:
            return found
        if self.running >= settings.at_once and self.pending >= settings.pending_max:
            self._counters(log).errors += 1
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "too many reads wait for the tier")
        read = RemoteRead(key, log, max_bytes)
        self._counters(log).requests += 1
        books.known[key] = read
        books.pending.append(read)
        self._pump()
        return read

    def remote_end(self, log: Log) -> RemoteEnd:
        """The last offset of this log in the tier; -1 while that is not known."""
        cache = self._cache(log)
        if cache is None:
            return NO_REMOTE_END
        return cache.remote_end(Lineage(log.epochs.entries, log.log_end_offset))

    async def find_time(self, log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
        """The first record below the local log start with this timestamp or a later one; None asks
        for the highest timestamp. As many look-ups go on and wait as reads do, beside them.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing is known then.
        """
        settings, books = self._settings(), self._books
        if books.lookups >= settings.at_once + settings.pending_max:
            raise _failed("too many look-ups wait for the tier")
        books.lookups += 1
        try:
            async with self._lookups:
                cache = self._cache(log)
                if cache is None:
                    raise _failed("what the tier has is not known yet")
                search = TimeSearch(self._store, self.indexes, self._files, log, cache)
                if timestamp_ms is None:
                    return await search.highest()
                return await search.first_at_or_after(timestamp_ms)
        except (ObjectError, CorruptSegment, CorruptIndex, OSError) as error:
            raise _failed(str(error)) from error
        finally:
            books.lookups -= 1

    def _cache(self, log: Log) -> SegmentCache | None:
        assert log.topic_id is not None
        return self._cache_of(RemotePartition(log.topic_id, log.partition, log.topic))

    def taken(self, read: RemoteRead) -> None:
        """A fetch sends what was read: the next one will ask for what is behind it."""
        data, log = read.data, read.log
        if data is None or data.last_offset + 1 >= log.local_log_start_offset:
            return
        books = self._books
        room = KEPT_BYTES_MAX // 2 - books.kept_bytes - PART_BYTES_MAX * len(books.running)
        if books.pending or self.running >= self._settings().at_once or room < PART_BYTES_MAX:
            return
        if not self.has_room:
            return
        self.read(log, data.last_offset + 1, read.max_bytes, committed=read.key.committed)

    def give_up(self, read: RemoteRead) -> None:
        """The fetch that waited is gone, with its connection. A read that has not begun and that
        nobody else wants is dropped."""
        books = self._books
        if read.wanted or read.key in books.running or read.done:
            return
        if books.known.pop(read.key, None) is not None:
            books.pending.remove(read)

    def holds(self, data: RemoteData, log: Log, offset: int) -> bool:
        """Whether `data`, read from `offset` on, is of this log: the same epoch wrote its last
        record here, and then all before it is the same."""
        return (
            log.log_start_offset <= offset
            and data.last_offset < log.high_watermark
            and log.epoch_at(data.last_offset) == data.last_epoch
        )

    # --- turns ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        books = self._books
        while books.pending and len(books.running) < self._settings().at_once:
            read = books.pending.popleft()
            books.running[read.key] = read
            name = f"remote read {read.log.topic}-{read.log.partition}"
            self._supervisor.spawn(name, self._run(read), fatal=False)

    async def _run(self, read: RemoteRead) -> None:
        result: RemoteData | ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR  # if the node stops
        try:
            result = await self._read(read)
        except ApiError as error:
            result = error.code
        except (ObjectError, CorruptSegment, CorruptIndex, OSError) as error:
            self._warn(read, error)
        except InvariantViolated:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is in a store must not stop the node
            self._supervisor.survive("remote read", error, topic=read.log.topic)
        finally:
            self._finish(read, result)

    def _finish(self, read: RemoteRead, result: RemoteData | ErrorCode) -> None:
        books, now_ms = self._books, self._clock.monotonic_ms()
        del books.running[read.key], books.known[read.key]
        counters = self._counters(read.log)
        if isinstance(result, RemoteData):
            counters.bytes += len(result.records)
            self._limit.record(len(result.records))
            books.kept_bytes += result.held_bytes
            self._held.add(result.records, result.held_bytes)
        elif result is not ErrorCode.OFFSET_OUT_OF_RANGE:
            counters.errors += 1
        if isinstance(result, RemoteData) or not read.wanted:
            books.kept[read.key] = read
        read.finish(result, now_ms)
        self._forget_old()
        self._sweep_later()
        self._pump()

    def _sweep_later(self) -> None:
        """What is kept goes after its time, also when nobody reads any more."""
        if self._sweep is None and not self._closed:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self._forget_old()
        self.indexes.expire()
        if self._books.kept or len(self.indexes):
            self._sweep_later()

    def close(self) -> None:
        """Nothing is asked for any more. What goes on ends with the node's tasks."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.indexes.close()

    def _take_kept(self, key: _Key, log: Log) -> RemoteRead | None:
        """What was read before. It stays for other readers, unless it is of no use any more; an
        error is told once."""
        found = self._books.kept.get(key)
        if found is None:
            return None
        if found.log is log and found.data is not None and self.holds(found.data, log, key.offset):
            return found
        self._forget(key)
        return found if found.log is log and found.error is not None else None

    def _forget_old(self) -> None:
        books, oldest_ms = self._books, self._clock.monotonic_ms() - KEPT_MS
        while books.kept:
            key, read = next(iter(books.kept.items()))
            young = read.done_ms > oldest_ms
            if young and books.kept_bytes <= KEPT_BYTES_MAX and self._held.bytes < HELD_BYTES_MAX:
                return
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        data = self._books.kept.pop(key).data
        self._books.kept_bytes -= data.held_bytes if data is not None else 0

    def _counters(self, log: Log) -> ReadCounters:
        return self.counters.setdefault(log.topic, ReadCounters())

    def _warn(self, read: RemoteRead, error: Exception) -> None:
        held_back = self._quiet.admit(type(error).__name__)
        if held_back is not None:
            _log.warning(
                "cannot read from the tier",
                topic=read.log.topic,
                partition=read.log.partition,
                offset=read.key.offset,
                error=str(error),
                held_back=held_back,
            )

    # --- one read -------------------------------------------------------------------------------

    async def _read(self, read: RemoteRead) -> RemoteData:
        log, offset = read.log, read.key.offset
        while True:
            shared, lineage, cache = self._find(log, offset)
            found = await self._read_in(shared, offset, read.max_bytes)
            if found is not None:
                break
            # The segment has no record from `offset` on: cleaned, before the topic was tiered.
            offset = shared.offsets.last + 1
            if offset >= log.local_log_start_offset:
                found = await self._read_local(read, offset)
                break
        aborted: tuple[AbortedTxn, ...] = ()
        if read.key.committed:
            aborted = await self._aborted(log, lineage, cache, offset, found.last_offset + 1)
        return found._replace(aborted=aborted)

    def _find(self, log: Log, offset: int) -> tuple[SharedSegment, Lineage, SegmentCache]:
        """Raises ApiError."""
        if not log.log_start_offset <= offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        cache = self._cache(log)
        if cache is None:
            raise _failed("what the tier has is not known yet")
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        shared = cache.find_on(lineage, offset)
        if shared is None:
            # Not OFFSET_OUT_OF_RANGE: a reader that begins elsewhere for it loses records.
            raise _failed(f"the tier has no segment with offset {offset}")
        return shared, lineage, cache

    async def _read_in(
        self, shared: SharedSegment, offset: int, max_bytes: int
    ) -> RemoteData | None:
        """None if the segment has no batches from `offset` on. Raises ObjectError, CorruptSegment,
        CorruptIndex, OSError."""
        segment, last_shared = shared.segment, shared.offsets.last
        position = (await self.indexes.get(segment)).position(offset)
        most = min(max(max_bytes, 1), PART_BYTES_MAX)
        size = most + INDEX_SLACK_BYTES
        while position < segment.size_bytes:
            data, checked = await self._store.read_log(
                segment, position, size, last_offset=last_shared, run=self._files.run
            )
            found = await self._files.run(_from, data, checked.whole_bytes, offset, most)
            if found is not None:
                return found
            if not checked.whole_bytes and checked.cut_bytes <= size:
                break  # only what this log does not share is left
            position += checked.whole_bytes
            size = max(size, checked.cut_bytes)
        return None

    async def _read_local(self, read: RemoteRead, offset: int) -> RemoteData:
        """What follows on this disk. Raises ApiError."""
        log, most = read.log, min(max(read.max_bytes, 1), PART_BYTES_MAX)
        end = log.last_stable_offset if read.key.committed else log.high_watermark
        try:
            data = await log.read_cold(offset, most, max_offset=end)
        except BelowLocalStart as error:
            raise _failed(str(error)) from None
        found = _from(data, len(data), offset, most)
        if found is None:
            raise _failed(f"there are no records from {offset} on")
        return found

    async def _aborted(
        self, log: Log, lineage: Lineage, cache: SegmentCache, offset: int, end_offset: int
    ) -> tuple[AbortedTxn, ...]:
        """Aborted transactions with records in [offset, end_offset). The markers that end them may
        lie far behind, in the tier or on this disk."""
        found: dict[AbortedTxn, None] = {}
        while True:
            local_start = log.local_log_start_offset
            for shared in cache.with_aborted(lineage, offset):
                indexes = await self.indexes.get(shared.segment)
                for txn in indexes.aborted():
                    if txn.last_offset > shared.offsets.last:
                        break
                    if txn.last_offset >= offset and txn.first_offset < end_offset:
                        found[txn] = None
                    if txn.last_stable_offset >= end_offset:
                        return tuple(found)
            if local_start == log.local_log_start_offset:
                # Else a segment may have gone from here that was not looked into there.
                found |= dict.fromkeys(log.aborted_transactions(offset, end_offset))
                return tuple(found)


def _from(data: Buffer, whole_bytes: int, offset: int, max_bytes: int) -> RemoteData | None:
    """Of the whole batches in `data` those from the one that has `offset`, or the next one, up to a
    limit but at least one. None if there is none."""
    start = end = -1
    last_offset = last_epoch = -1
    whole = memoryview(data)[:whole_bytes]
    for header, at in iter_batches(whole):
        if header.last_offset < offset:
            continue
        if start < 0:
            start = at
        elif at + header.size_bytes - start > max_bytes:
            break
        end = at + header.size_bytes
        last_offset, last_epoch = header.last_offset, header.leader_epoch
    if start < 0:
        return None
    records: Buffer = whole[start:end]
    if 2 * len(records) <= len(data):  # a small part would keep all of it
        records = Part(records)
        return RemoteData(records, last_offset, last_epoch, len(records))
    return RemoteData(records, last_offset, last_epoch, len(data))


def _failed(why: str) -> ApiError:
    """An error of one partition that clients try again after."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
