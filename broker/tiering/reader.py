"""Shell: reads of consumers from the tier (KIP-405).

A read begins when a fetch asks for it, and goes on when that fetch is answered without it: the next
fetch of the same offset finds it under way or done. Else a store slower than a fetch may wait would
never be read at all. What a read brings may serve several fetches (`windows.py`). Who asks for what
follows it reads on, and has more read at once, and the part behind it read ahead as soon as a fetch
takes of it, if nobody waits for the store.

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
"""What a read may bring at most, but for a first batch that is larger. A store's work for a request
is small beside that for so many bytes, and twice as many would save a tenth."""
KEPT_BYTES_MAX: Final = 64 << 20
HELD_BYTES_MAX: Final = 256 << 20
"""What is kept and what clients do not fetch, together."""
KEPT_MS: Final = 30_000.0
"""How long what was read stays for a fetch that takes it."""
FAILED_MS: Final = 5_000.0
"""How long an error that came too late for a fetch waits to be told. Whoever comes later has a read
of its own, as the store may be well again."""
SWEEP_S: Final = 30.0
INDEX_SLACK_BYTES: Final = 16 << 10
"""The index leads to a batch before the one that is wanted. How far before its next entry says;
behind its last one it is about `index.interval.bytes`."""
FOLLOWED_MAX: Final = 1_000
"""So many ends of what was read are known."""

_log = get_logger("broker.tiering.reader")

CacheOf: TypeAlias = Callable[[RemotePartition], SegmentCache | None]


class _Key(NamedTuple):
    """What tells reads apart. The log counts as an object: another one may have its place."""

    stream: Stream
    offset: int
    log: Log


class RemoteRead:
    """One read, under way or done: then `window` is there, or `error`: a code, since an exception
    holds all that it passed through."""

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
        """Whether a fetch waits for it."""
        return bool(self._listeners)

    def listen(self, listener: Callable[[RemoteRead], None]) -> None:
        """Calls `listener` once, when the read is done; never from within this call."""
        self._listeners[listener] = None

    def leave(self, listener: Callable[[RemoteRead], None]) -> None:
        self._listeners.pop(listener, None)

    def finish(self, result: Window | ErrorCode, now_ms: float) -> None:
        """Only the reader calls this."""
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
    """Of one topic; for the metrics."""

    requests: int = 0
    errors: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Books:
    """Reads by their key: what goes on, what waits, what failed; and what came of them."""

    running: dict[_Key, RemoteRead] = field(default_factory=dict)
    pending: deque[RemoteRead] = field(default_factory=deque)
    known: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Running and pending."""
    failed: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Whose error nobody has heard, oldest first."""
    kept: KeptWindows = field(default_factory=KeptWindows)
    followed: dict[tuple[bytes, int, int], Place] = field(default_factory=dict)
    """Where the offset is, of a topic id's partition, that follows what was read."""
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
        return self._books.kept.bytes

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

    def taken(self, read: RemoteRead, last_offset: int) -> None:
        """A fetch sends what was read, up to `last_offset`: the next ones will ask for what is
        behind it."""
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
        """Whether so many parts can be kept beside what nobody has read to the end."""
        return self._books.kept.unread_bytes + PART_BYTES_MAX * parts <= KEPT_BYTES_MAX

    def give_up(self, read: RemoteRead) -> None:
        """The fetch that waited is gone, with its connection. A read that has not begun and that
        nobody else wants is dropped."""
        books = self._books
        if read.wanted or read.key in books.running or read.done:
            return
        if books.known.pop(read.key, None) is not None:
            books.pending.remove(read)

    def holds(self, window: Window, log: Log, offset: int) -> bool:
        """Whether `window`, read from `offset` on, is of this log: the same epoch wrote its last
        record here, and then all before it is the same."""
        return (
            log.log_start_offset <= offset
            and window.last_offset < log.high_watermark
            and log.epoch_at(window.last_offset) == window.last_epoch
        )

    # --- turns ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        books = self._books
        while books.pending and len(books.running) < self._settings().at_once:
            read = books.pending.popleft()
            window = self._find_kept(read.key, read.log)
            if window is not None:  # another read has brought it
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
        """What is kept goes after its time, also when nobody reads any more."""
        if self._sweep is None and not self._closed:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self._forget_old()
        self.indexes.expire()
        if self._books.kept or self._books.failed or len(self.indexes):
            self._sweep_later()

    def close(self) -> None:
        """Nothing is asked for any more. What goes on ends with the node's tasks."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.indexes.close()

    def _find_kept(self, key: _Key, log: Log) -> Window | None:
        """What was read before. It stays for other readers, unless it is of no use any more."""
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
            # The segment has no record from `offset` on: cleaned, before the topic was tiered.
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
        """Return what is known of the tier at this moment. Raises ApiError."""
        cache = self._cache(log)
        if cache is None:
            raise _failed("what the tier has is not known yet")
        return cache

    def _find(self, log: Log, offset: int) -> SharedSegment:
        """Raises ApiError."""
        if not log.log_start_offset <= offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        shared = self._known(log).find_on(lineage, offset)
        if shared is None:
            # Not OFFSET_OUT_OF_RANGE: a reader that begins elsewhere for it loses records.
            raise _failed(f"the tier has no segment with offset {offset}")
        return shared

    async def _read_in(self, shared: SharedSegment, read: RemoteRead, offset: int) -> Window | None:
        """None if the segment has no batches from `offset` on. Raises ObjectError, CorruptSegment,
        CorruptIndex, OSError."""
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
                break  # only what this log does not share is left
            size = max(size, checked.cut_bytes)
        return None

    async def _range(
        self, segment: RemoteSegment, read: RemoteRead, offset: int
    ) -> tuple[int, int]:
        """Where to begin in a segment, and how much to ask for. Raises ObjectError, CorruptSegment,
        CorruptIndex, OSError."""
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
        # A batch that would be cut is left to the next read.
        is_last = position + size >= segment.size_bytes
        return position, size if is_last or end <= position else end - position

    async def _read_local(self, read: RemoteRead, offset: int) -> Window:
        """What follows on this disk. Raises ApiError."""
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
        """Aborted transactions with records in [offset, end_offset). The markers that end them may
        lie far behind, in the tier or on this disk. Raises ApiError."""
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
                # Else a segment may have gone from here that was not looked into there.
                found |= dict.fromkeys(log.aborted_transactions(offset, end_offset))
                return tuple(found)


def _failed(why: str) -> ApiError:
    """An error of one partition that clients try again after."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
