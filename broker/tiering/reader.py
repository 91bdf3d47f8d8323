"""Shell: Consumers' reads from the tier (KIP-405).

A read begins when a fetch requests it, and continues if that fetch is answered without it: the next
fetch of the same offset finds it running or done. Otherwise a store that is slower than a fetch's
wait limit could never be read. One read may serve several fetches (`windows.py`). A reader that
requests the following offset gets more data per read. The part behind it is then read ahead, as
soon as a fetch takes data and no other read waits for the store.

Memory is bounded. A limited number of reads run at once, each of one part. A limited number wait
for their turn and hold nothing. Results are kept for a limited time and up to a limited size.
Further reads are refused with a retriable error. Sent data counts until the kernel has it
(`held.py`). If clients that do not read their responses hold too much, no read starts until they
read them or disconnect, as with an exhausted quota.

The batches read are verified by their own checksums against the segment's metadata, and limited to
what the replica's lineage shares with the segment (S1). They are checked once more with `holds`
before they are sent, because the log may have been truncated in the meantime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.tiering.held import HeldBuffers
from broker.tiering.index_cache import IndexCache
from broker.tiering.quota import RateLimit
from broker.tiering.settings import QuotaSettings, ReadSettings
from broker.tiering.time_search import TimeSearch
from broker.tiering.turns import Turns
from broker.tiering.windows import KeptWindows, Place, Stream, Window, window_of
from protocol.errors import ApiError, ErrorCode
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.errors import BelowLocalStart, OffsetOutOfRange
from storage.log.indexes import AbortedTxn, CorruptIndex
from storage.log.timestamps import TimestampOffset
from storage.objects.port import ObjectError
from storage.tiered.batches import CorruptSegment, own_batches
from storage.tiered.cache import NO_REMOTE_END, RemoteEnd, SegmentCache, SharedSegment
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore
from storage.tiered.values import RemotePartition, RemoteSegment

if TYPE_CHECKING:
    from storage.log.log import Log

PART_BYTES_MAX: Final = 4 << 20
"""Limit for one read, except for a first batch that is larger. For this size the store's cost per
request is small; twice the size would save a tenth."""
KEPT_BYTES_MAX: Final = 64 << 20
HELD_BYTES_MAX: Final = 256 << 20
"""Limit for kept results and for responses that clients have not read, together."""
KEPT_MS: Final = 30_000.0
"""How long a result is kept for a fetch."""
FAILED_MS: Final = 5_000.0
"""How long the error of an abandoned read is kept for a fetch. A later fetch starts a new read, as
the store may work again."""
SWEEP_S: Final = 30.0
INDEX_SLACK_BYTES: Final = 16 << 10
"""Additional bytes to read. The index points to a batch before the requested one; the distance is
known from the next index entry. Behind the last entry it is about `index.interval.bytes`."""
FOLLOWED_MAX: Final = 1_000
"""Number of ends of earlier reads that are remembered."""

_log = get_logger("broker.tiering.reader")

CacheOf: TypeAlias = Callable[[RemotePartition], SegmentCache | None]


class _Key(NamedTuple):
    """Identity of a read. The log counts as an object: another log may have replaced it."""

    stream: Stream
    offset: int
    log: Log


class RemoteRead:
    """One read, running or done. A read that is done has `window` or `error`, a code: an exception
    would keep its frames in memory."""

    __slots__ = ("_listeners", "done_ms", "error", "key", "log", "max_bytes", "window")

    def __init__(self, key: _Key, log: Log, max_bytes: int) -> None:
        self.key = key
        self.log = log
        self.max_bytes = max_bytes
        self.window: Window | None = None
        self.error: ErrorCode | None = None
        self.done_ms = -1.0
        self._listeners: dict[Callable[[RemoteRead], None], None] = {}

    @property
    def done(self) -> bool:
        return self.window is not None or self.error is not None

    @property
    def wanted(self) -> bool:
        """True if a fetch waits for it."""
        return bool(self._listeners)

    def listen(self, listener: Callable[[RemoteRead], None]) -> None:
        """Call `listener` once, when the read is done; never from within this call."""
        self._listeners[listener] = None

    def leave(self, listener: Callable[[RemoteRead], None]) -> None:
        self._listeners.pop(listener, None)

    def finish(self, result: Window | ErrorCode, now_ms: float) -> None:
        """Set the result and call the listeners. Only the reader calls this."""
        if isinstance(result, Window):
            self.window = result
        else:
            self.error = result
        self.done_ms = now_ms
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener(self)


@dataclass(slots=True)
class ReadCounters:
    """Counts of one topic, for the metrics."""

    requests: int = 0
    errors: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Books:
    """The reader's state: running, waiting and failed reads by key, and kept results."""

    running: dict[_Key, RemoteRead] = field(default_factory=dict)
    pending: deque[RemoteRead] = field(default_factory=deque)
    known: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Running and pending reads."""
    failed: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Failed reads whose error no fetch has received, oldest first."""
    kept: KeptWindows = field(default_factory=KeptWindows)
    followed: dict[tuple[bytes, int, int], Place] = field(default_factory=dict)
    """By topic id, partition and offset: where a read ended, so the offset is the next to read."""
    lookups: int = 0
    """Number of lookups of offsets by time, running or waiting."""


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
        """Set up the reader. `cache_of` is `Journal.cache`. Settings are read at each use: they are
        dynamic, except the number and size of the quota's windows."""
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

    # --- requests of fetches --------------------------------------------------------------------

    @property
    def fetch_wait_ms(self) -> int:
        """Longest wait of a fetch before it is answered without the missing data."""
        return self._settings().fetch_wait_ms

    @property
    def list_offsets_timeout_ms(self) -> int:
        """Timeout for requests that do not contain one."""
        return self._settings().list_offsets_timeout_ms

    @property
    def pending(self) -> int:
        """Number of reads that wait for their turn."""
        return len(self._books.pending)

    @property
    def running(self) -> int:
        return len(self._books.running)

    @property
    def kept_bytes(self) -> int:
        """Size of the results that are kept."""
        return self._books.kept.bytes

    def reconfigured(self) -> None:
        """Apply changed limits; start waiting reads and lookups."""
        self._lookups.reconfigured()
        self._pump()

    def throttle_ms(self) -> float:
        """Return how long to start no read because of the quota of all reads, in milliseconds; 0.0
        for no wait."""
        return self._limit.pause_ms()

    @property
    def has_room(self) -> bool:
        """True if the quota and the memory in use allow more reads now."""
        if self.throttle_ms() > 0:
            return False
        self._forget_old()
        return self._held.bytes < HELD_BYTES_MAX

    def read(self, log: Log, offset: int, max_bytes: int, *, committed: bool) -> RemoteRead:
        """Return the read at `offset`, which is below the local log start; start one if necessary.

        Args:
            max_bytes: limit for the records, at least one batch; the reader has a limit of its own.
            committed: include the aborted transactions that a read_committed reader must skip.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR when too many reads wait.
        """
        assert log.topic_id is not None
        key = _Key(Stream(log.topic_id, log.partition, committed), offset, log)
        books, settings = self._books, self._settings()
        self._forget_old()
        # An error that no fetch has received yet is returned once.
        found = books.known.get(key) or books.failed.pop(key, None)
        if found is not None:
            return found
        window = self._find_kept(key, log)
        if window is not None:
            found = RemoteRead(key, log, max_bytes)
            found.finish(window, self._clock.monotonic_ms())
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
        """Return the last offset of this log in the tier, -1 while that is not known."""
        cache = self._cache(log)
        if cache is None:
            return NO_REMOTE_END
        return cache.remote_end(Lineage(log.epochs.entries, log.log_end_offset))

    async def find_time(self, log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
        """Return the first record below the local log start with this timestamp or a later one;
        None requests the highest timestamp. Lookups have the same limits as reads, and are counted
        separately.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if too many lookups wait, or if the tier cannot be read;
                INVALID_RECORD at a record above `max.decompressed.message.bytes`.
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

    def taken(self, read: RemoteRead, last_offset: int) -> None:
        """Note that a fetch sends the read's records up to `last_offset`; read ahead, because the
        next fetches will request the records behind them."""
        books, window, log = self._books, read.window, read.log
        if window is None:
            return
        if last_offset >= window.last_offset:
            books.kept.spend(window, self._clock.monotonic_ms())
        following = window.last_offset + 1
        if (
            following >= log.local_log_start_offset
            or _Key(read.key.stream, following, log) in books.failed
        ):
            return
        if books.pending or self.running >= self._settings().at_once or not self.has_room:
            return
        if self._has_room_for(len(books.running) + 1):
            self.read(log, following, read.max_bytes, committed=read.key.stream.committed)

    def _has_room_for(self, parts: int) -> bool:
        """Return whether this number of parts can be kept in addition to the results not yet read
        to the end."""
        return self._books.kept.unread_bytes + PART_BYTES_MAX * parts <= KEPT_BYTES_MAX

    def give_up(self, read: RemoteRead) -> None:
        """Handle the end of a waiting fetch whose connection has closed. A read that has not begun
        and that no other fetch waits for is dropped."""
        books = self._books
        if read.wanted or read.key in books.running or read.done:
            return
        if books.known.pop(read.key, None) is not None:
            books.pending.remove(read)

    def holds(self, window: Window, log: Log, offset: int) -> bool:
        """Return whether `window`, read from `offset` on, belongs to this log: its last record has
        the same epoch here, which implies the same records before it."""
        return (
            log.log_start_offset <= offset
            and window.last_offset < log.high_watermark
            and log.epochs.epoch_at(window.last_offset) == window.last_epoch
        )

    # --- turns ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        books = self._books
        while books.pending and len(books.running) < self._settings().at_once:
            read = books.pending.popleft()
            window = self._find_kept(read.key, read.log)
            if window is not None:  # another read has returned the data
                del books.known[read.key]
                read.finish(window, self._clock.monotonic_ms())
                continue
            books.running[read.key] = read
            name = f"remote read {read.log.topic}-{read.log.partition}"
            self._supervisor.spawn(name, self._run(read), fatal=False)

    async def _run(self, read: RemoteRead) -> None:
        result: Window | ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR  # if the node stops
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

    def _finish(self, read: RemoteRead, result: Window | ErrorCode) -> None:
        books, now_ms = self._books, self._clock.monotonic_ms()
        del books.running[read.key], books.known[read.key]
        counters = self._counters(read.log)
        if isinstance(result, Window):
            counters.bytes += len(result.records)
            self._limit.record(len(result.records))
            books.kept.add(read.key.stream, read.log, result, now_ms)
            self._held.add(result.records, result.held_bytes)
            self._note_end(read.key.stream, result)
        elif result is not ErrorCode.OFFSET_OUT_OF_RANGE:
            counters.errors += 1
        if not isinstance(result, Window) and not read.wanted:
            books.failed[read.key] = read
        read.finish(result, now_ms)
        self._forget_old()
        self._sweep_later()
        self._pump()

    def _note_end(self, stream: Stream, window: Window) -> None:
        if window.end is not None:
            followed = self._books.followed
            followed[stream.topic_id, stream.partition, window.last_offset + 1] = window.end
            if len(followed) > FOLLOWED_MAX:
                del followed[next(iter(followed))]

    def _sweep_later(self) -> None:
        """Schedule the removal of old results, for the case that no further read arrives."""
        if self._sweep is None and not self._closed:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self._forget_old()
        self.indexes.expire()
        if self._books.kept or self._books.failed or len(self.indexes):
            self._sweep_later()

    def close(self) -> None:
        """Close the indexes and start no more timers. Running reads end with the node's tasks."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.indexes.close()

    def _find_kept(self, key: _Key, log: Log) -> Window | None:
        """Return a kept result for this read. It stays for other readers, unless it is no longer
        valid."""
        window = self._books.kept.find(key.stream, log, key.offset)
        if window is not None and not self.holds(window, log, key.offset):
            self._books.kept.remove(window)
            return None
        return window

    def _forget_old(self) -> None:
        books, now_ms = self._books, self._clock.monotonic_ms()
        kept, failed = books.kept, books.failed
        kept.remove_older(now_ms - KEPT_MS)
        while kept and (kept.bytes > KEPT_BYTES_MAX or self._held.bytes >= HELD_BYTES_MAX):
            kept.remove_one()
        while failed and next(iter(failed.values())).done_ms <= now_ms - FAILED_MS:
            del failed[next(iter(failed))]

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

    async def _read(self, read: RemoteRead) -> Window:
        log, offset = read.log, read.key.offset
        while True:
            shared = self._find(log, offset)
            found = await self._read_in(shared, read, offset)
            if found is not None:
                break
            # The segment has no record from `offset` on: it was compacted before the topic was
            # tiered.
            offset = shared.offsets.last + 1
            if offset >= log.local_log_start_offset:
                found = await self._read_local(read, offset)
                break
        found = replace(found, first_offset=min(found.first_offset, read.key.offset))
        if not read.key.stream.committed:
            return found
        first, end = found.first_offset, found.last_offset + 1
        return replace(found, aborted=await self._aborted(log, first, end))

    def _known(self, log: Log) -> SegmentCache:
        """Return the metadata cache at this moment. Raises ApiError if it is not ready."""
        cache = self._cache(log)
        if cache is None:
            raise _failed("what the tier has is not known yet")
        return cache

    def _find(self, log: Log, offset: int) -> SharedSegment:
        """Return the segment with `offset`. Raises ApiError without one, or if the offset is below
        the log start."""
        if not log.log_start_offset <= offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        shared = self._known(log).find_on(lineage, offset)
        if shared is None:
            # Not OFFSET_OUT_OF_RANGE: a reader that restarted elsewhere because of it would lose
            # records.
            raise _failed(f"the tier has no segment with offset {offset}")
        return shared

    async def _read_in(self, shared: SharedSegment, read: RemoteRead, offset: int) -> Window | None:
        """Return the batches of a segment from `offset` on, or None if it has none.

        Raises:
            ObjectError: the store cannot be read.
            CorruptSegment, CorruptIndex: the segment or an index is invalid.
            OSError: a disk operation failed.
        """
        segment, last_shared = shared.segment, shared.offsets.last
        position, size = await self._range(segment, read, offset)
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
        self, segment: RemoteSegment, read: RemoteRead, offset: int
    ) -> tuple[int, int]:
        """Return the position in a segment to read from, and the number of bytes. Raises
        ObjectError, CorruptSegment, CorruptIndex, OSError if the indexes cannot be read."""
        indexes = await self.indexes.get(segment)
        most = min(max(read.max_bytes, 1), PART_BYTES_MAX)
        stream = read.key.stream
        follows = self._books.followed.get((stream.topic_id, stream.partition, offset))
        if follows is None:
            position, begin = indexes.position(offset), indexes.beyond(offset)
            gap = 0 if begin is None or offset <= segment.start_offset else begin - position
            return position, most + max(INDEX_SLACK_BYTES, min(gap, PART_BYTES_MAX))
        position = follows.position
        if follows.segment_id != segment.segment_id:
            position = indexes.position(offset)
        size = most + INDEX_SLACK_BYTES
        if self._has_room_for(len(self._books.running)):
            size = PART_BYTES_MAX
        end = indexes.begin_before(position + size)
        # A batch that would be incomplete is left to the next read.
        is_last = position + size >= segment.size_bytes
        return position, size if is_last or end <= position else end - position

    async def _read_local(self, read: RemoteRead, offset: int) -> Window:
        """Return the records that follow on the local disk. Raises ApiError without any."""
        log, most = read.log, min(max(read.max_bytes, 1), PART_BYTES_MAX)
        end = log.last_stable_offset if read.key.stream.committed else log.high_watermark
        try:
            data = await log.read_cold(offset, most, max_offset=end)
        except BelowLocalStart as error:
            raise _failed(str(error)) from None
        found = window_of(data, await self._files.run(own_batches, data), offset, None)
        if found is None:
            raise _failed(f"there are no records from {offset} on")
        return found

    async def _aborted(self, log: Log, offset: int, end_offset: int) -> tuple[AbortedTxn, ...]:
        """Return the aborted transactions with records in [offset, end_offset). Their end markers
        may be much later, in the tier or on the local disk. Raises ApiError if the metadata is not
        ready."""
        found: dict[AbortedTxn, None] = {}
        while True:
            local_start, cache = log.local_log_start_offset, self._known(log)
            lineage = Lineage(log.epochs.entries, log.log_end_offset)
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
                # Otherwise a local segment may have been deleted whose tier copy was not searched.
                found |= dict.fromkeys(log.reader.aborted_transactions(offset, end_offset))
                return tuple(found)


def _failed(why: str) -> ApiError:
    """Return a retriable error for one partition."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
