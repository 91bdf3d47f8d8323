"""Shell: Consumers' reads from the tier (KIP-405).

A read begins when a fetch requests it, and continues if that fetch is answered without it: the next
fetch of the same offset finds it running or done. Otherwise a store that is slower than a fetch's
wait limit could never be read. One read may serve several fetches (`windows.py`). A reader that
requests the following offset gets more data per read. The part behind it is then read ahead, as
soon as a fetch takes data and no other read waits for the store.

Memory is bounded (`read_memory.py`). A limited number of reads run at once, each of one part
(`part_reader.py`). A limited number wait for their turn and hold nothing. Further reads are refused
with a retriable error. A result is checked once more with `holds` before it is sent, because the
log may have been truncated in the meantime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.tiering.index_cache import IndexCache
from broker.tiering.part_reader import CacheOf, PartReader, PartRequest, unavailable
from broker.tiering.quota import RateLimit
from broker.tiering.read_memory import ReadMemory, belongs_to
from broker.tiering.settings import QuotaSettings, ReadSettings
from broker.tiering.time_search import TimeSearch
from broker.tiering.turns import Turns
from broker.tiering.windows import Stream, Window
from protocol.errors import ApiError, ErrorCode
from runtime.clock import Clock
from runtime.errors import InvariantViolated
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.indexes import CorruptIndex
from storage.log.timestamps import TimestampOffset
from storage.objects.port import ObjectError
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import NO_REMOTE_END, RemoteEnd
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore

if TYPE_CHECKING:
    from storage.log.log import Log

FAILED_MS: Final = 5_000.0
"""How long the error of an abandoned read is kept for a fetch. A later fetch starts a new read, as
the store may work again."""
SWEEP_S: Final = 30.0

_log = get_logger("broker.tiering.reader")


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
    def part(self) -> PartRequest:
        """The part of the log to read."""
        return PartRequest(self.key.stream, self.log, self.key.offset, self.max_bytes)

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
    """The reader's state: running, waiting and failed reads by key."""

    running: dict[_Key, RemoteRead] = field(default_factory=dict)
    pending: deque[RemoteRead] = field(default_factory=deque)
    known: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Running and pending reads."""
    failed: dict[_Key, RemoteRead] = field(default_factory=dict)
    """Failed reads whose error no fetch has received, oldest first."""
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
        self._settings = settings
        self._limit = RateLimit(quota, clock)
        self._files = files
        self._supervisor = supervisor
        self._clock = clock
        self._quiet = RateLimited(clock, 10_000)
        self._books = _Books()
        self._memory = ReadMemory()
        self._parts = PartReader(
            store, indexes, cache_of, self._memory, files, running=lambda: self.running
        )
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
        return self._memory.kept_bytes

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
        return self._memory.has_room

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
        window = self._memory.find(key.stream, log, offset)
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
        cache = self._parts.cache(log)
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
            raise unavailable("too many look-ups wait for the tier")
        books.lookups += 1
        try:
            async with self._lookups:
                cache = self._parts.known_cache(log)
                search = TimeSearch(self._store, self.indexes, self._files, log, cache)
                if timestamp_ms is None:
                    return await search.highest()
                return await search.first_at_or_after(timestamp_ms)
        except (ObjectError, CorruptSegment, CorruptIndex, OSError) as error:
            raise unavailable(str(error)) from error
        finally:
            books.lookups -= 1

    def taken(self, read: RemoteRead, last_offset: int) -> None:
        """Note that a fetch sends the read's records up to `last_offset`; read ahead, because the
        next fetches will request the records behind them."""
        books, window, log = self._books, read.window, read.log
        if window is None:
            return
        if last_offset >= window.last_offset:
            self._memory.spend(window, self._clock.monotonic_ms())
        following = window.last_offset + 1
        if (
            following >= log.local_log_start_offset
            or _Key(read.key.stream, following, log) in books.failed
        ):
            return
        if books.pending or self.running >= self._settings().at_once or not self.has_room:
            return
        if self._memory.has_room_for(len(books.running) + 1):
            self.read(log, following, read.max_bytes, committed=read.key.stream.committed)

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
        return belongs_to(log, window, offset)

    # --- turns ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        books = self._books
        while books.pending and len(books.running) < self._settings().at_once:
            read = books.pending.popleft()
            window = self._memory.find(read.key.stream, read.log, read.key.offset)
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
            result = await self._parts.read(read.part)
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
            self._memory.add(read.key.stream, read.log, result, now_ms)
        elif result is not ErrorCode.OFFSET_OUT_OF_RANGE:
            counters.errors += 1
        if not isinstance(result, Window) and not read.wanted:
            books.failed[read.key] = read
        read.finish(result, now_ms)
        self._forget_old()
        self._sweep_later()
        self._pump()

    def _sweep_later(self) -> None:
        """Schedule the removal of old results, for the case that no further read arrives."""
        if self._sweep is None and not self._closed:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self._forget_old()
        self.indexes.expire()
        if self._memory or self._books.failed or len(self.indexes):
            self._sweep_later()

    def close(self) -> None:
        """Close the indexes and start no more timers. Running reads end with the node's tasks."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.indexes.close()

    def _forget_old(self) -> None:
        failed, now_ms = self._books.failed, self._clock.monotonic_ms()
        self._memory.remove_old(now_ms)
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
