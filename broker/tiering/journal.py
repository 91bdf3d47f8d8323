"""Shell: Journal of remote segments: one broker's reader and writer of `__remote_log_metadata`.

The required partitions of the topic are read from their leaders, one request for all of a leader. A
writer waits for the outcome of its own record when it is read back. The record is matched by its
content, not by its offset. So if a record was written twice because the response was lost, the
first one counts. The topic is created when the first partition is taken on.

A partition's cache is not returned before the journal has reached the topic's end as of taking the
partition on (see `storage/tiered/metadata.py`).

A partition of the topic may lose its end, and the topic may be deleted. Then the caches contain
records that no broker has any more. The journal drops these caches and notifies its subscribers in
the same event-loop iteration, so that no local segment is deleted because of such a record. It
fails the writers, and reads the remaining records from the start.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from broker.tiering.pauses import Pauses
from broker.tiering.topic_link import (
    EARLIEST,
    FAILURES,
    LATEST,
    MetadataLink,
    MetadataRead,
    MetadataTopic,
    ReadFrom,
)
from protocol.errors import ApiError, ErrorCode
from protocol.ids import TopicId
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.metadata import RemoteMetadata
from storage.tiered.records import METADATA_TOPIC, encode_record, metadata_partition
from storage.tiered.states import PartitionDeleteState, partition_may_become
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentUpdate,
    TierRecord,
)

REPLAYED_AT_ONCE: Final = 64
"""Records per event-loop iteration: some milliseconds."""

_log = get_logger("broker.tier")

Subscriber = Callable[[RemotePartition], None]


class TierUnavailable(Exception):
    """A record was not written, or not read back in time; in either case it may be written
    nevertheless."""


class _Watch:
    """A partition of the topic that is searched for partition removals."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.changed = changed
        self.target: int | None = None
        self.reached = 0
        self.deletions: dict[tuple[TopicId, int], PartitionDeletion] = {}

    @property
    def ready(self) -> bool:
        return self.target is not None and self.reached >= self.target

    def saw(self, record: PartitionDeletion) -> None:
        """Note a removal record, unless caches refuse it after the records before it. Records may
        come in any order: the topic may be read again from its start."""
        known = self.deletions.get(record.partition.identity)
        state = None if known is None else known.state
        if state is not record.state and partition_may_become(state, record.state):
            self.deletions[record.partition.identity] = record
            if self.ready:
                self.changed()

    def got_to(self, offset: int) -> None:
        """Note that all records below `offset` were read."""
        was_ready = self.ready
        self.reached = max(self.reached, offset)
        if self.ready and not was_ready:
            self.changed()

    def ends_at(self, offset: int) -> None:
        """Note an end offset of the topic's partition, from when the watch began or later."""
        if self.target is None:
            self.target = offset
            if self.ready:
                self.changed()


class Journal:
    """The metadata topic as one broker reads and writes it.

    Args:
        create_topic: returns when the controller reports that the topic exists; raises `FAILURES`.
        consume_wait_ms: how long a writer waits for its record to be read back.
    """

    def __init__(
        self,
        link: MetadataLink,
        *,
        create_topic: Callable[[], Awaitable[None]],
        consume_wait_ms: int,
        supervisor: Supervisor,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._link = link
        self._create_topic = create_topic
        self._consume_wait_ms = consume_wait_ms
        self._supervisor = supervisor
        self._rng = rng
        self._quiet = RateLimited(clock, 10_000)
        self._metadata: RemoteMetadata | None = None
        self._topic_id: TopicId | None = None
        self._taken: dict[tuple[TopicId, int], RemotePartition] = {}
        self._times_taken: dict[tuple[TopicId, int], int] = {}
        self._awaited: dict[int, frozenset[int]] = {}
        """By leader: partitions of the topic in the read that waits for news."""
        self._unready: defaultdict[int, dict[tuple[TopicId, int], RemotePartition]]
        self._unready = defaultdict(dict)
        self._watches: dict[int, _Watch] = {}
        self._subscribers: list[Subscriber] = []
        self._waiting: dict[TierRecord, list[asyncio.Future[Outcome]]] = {}
        self._ends_wanted: dict[int, int] = {}
        """By partition of the topic: how often its end was requested."""
        self._ends_learned: dict[int, int] = {}
        """By partition of the topic: the newest such request that was answered."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._moved = asyncio.Event()
        self._closed = False

    # Partitions ------------------------------------------------------------------------------

    def take(self, partition: RemotePartition) -> None:
        """Take a partition on for one more component; it is read until as many have released it."""
        if self._closed:
            return
        times = self._times_taken.get(partition.identity, 0)
        self._times_taken[partition.identity] = times + 1
        if times:
            return
        self._taken[partition.identity] = partition
        if self._metadata is None:
            self._run("topic", self._find_topic)
        else:
            self._begin(self._metadata, partition)

    def lead(self, partition: RemotePartition) -> None:
        """Note that this broker leads a partition that was taken on: see `leaders_cache`."""
        if self._metadata is not None and partition.identity in self._taken:
            number = self._metadata.lead(partition)
            self._unready[number][partition.identity] = partition
            self._want_end(number)

    def give_up(self, partition: RemotePartition) -> None:
        """Release a partition for one component. After the last one, writers of its records
        fail."""
        times = self._times_taken.get(partition.identity, 0)
        if times > 1:
            self._times_taken[partition.identity] = times - 1
        if times != 1:
            return
        del self._times_taken[partition.identity]
        del self._taken[partition.identity]
        if self._metadata is not None:
            self._metadata.give_up(partition)
        for unready in self._unready.values():
            unready.pop(partition.identity, None)
        self._fail_writers(lambda record: _of(record).identity == partition.identity)
        self._have_moved()

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache of a partition, or None until it is complete enough to act on."""
        return None if self._metadata is None else self._metadata.cache(partition)

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache for the partition's leader, or None until it contains all that was
        written before this broker led, so that no segment is copied twice (S6)."""
        return None if self._metadata is None else self._metadata.leaders_cache(partition)

    async def ready(self, partition: RemotePartition) -> SegmentCache:
        """Return the cache of a partition that was taken on, once it is complete enough to act on.
        Raises TierUnavailable if the partition is released first."""
        while True:
            if partition.identity not in self._taken:
                raise TierUnavailable(f"{partition} is not this broker's")
            cache = self.cache(partition)
            if cache is not None:
                return cache
            await self._moved.wait()

    def _have_moved(self) -> None:
        """Wake `ready` after a partition became ready or was released."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def subscribe(self, callback: Subscriber) -> None:
        """Register a callback for each partition whose cache has become ready or has changed."""
        self._subscribers.append(callback)

    def leader(self, partition: RemotePartition) -> int:
        """Return the leader of the topic's partition with the records of `partition`, or -1 without
        one."""
        metadata = self._metadata
        if metadata is None:
            return -1
        return self._link.leader(metadata_partition(partition, metadata.partitions))

    # Removals --------------------------------------------------------------------------------

    def watch(self, number: int, changed: Callable[[], None]) -> None:
        """Search a partition of the topic for removals; `changed` is called when `removals`
        changes."""
        self._watches[number] = _Watch(changed)
        if self._metadata is None:
            self._run("topic", self._find_topic)
        else:
            self._begin_watch(self._metadata, number)

    def unwatch(self, number: int) -> None:
        self._watches.pop(number, None)
        if self._metadata is not None:
            self._metadata.unwatch(number)

    def removals(self) -> list[RemotePartition]:
        """Return partitions whose removal is marked and not finished, as far as it is known."""
        return [
            deletion.partition
            for watch in self._watches.values()
            if watch.ready
            for deletion in watch.deletions.values()
            if deletion.state is not PartitionDeleteState.FINISHED
        ]

    # Writing ---------------------------------------------------------------------------------

    async def write(self, record: TierRecord) -> Outcome:
        """Write a record of a partition that was taken on, and wait until it is read back.

        Raises:
            TierUnavailable: the record was not written or not read back in time, or the partition
                was released. The cache shows the result later.
        """
        partition = _of(record)
        if partition.identity not in self._taken or self._closed:
            raise TierUnavailable(f"{partition} is not this broker's")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(record, []).append(future)
        appending = asyncio.ensure_future(self._append(record))
        either: list[asyncio.Future[Any]] = [future, appending]
        try:
            async with asyncio.timeout(self._consume_wait_ms / 1000.0):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    appending.result()
                return await future
        except TimeoutError:
            raise TierUnavailable(f"a record of {partition} was not read back in time") from None
        except FAILURES as error:
            raise TierUnavailable(f"a record of {partition}: {error}") from error
        finally:
            appending.cancel()
            appending.add_done_callback(_look_away)
            waiting = self._waiting.get(record, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(record, None)

    async def _append(self, record: TierRecord) -> None:
        """Append a record, retrying until it is certainly written. Raises ApiError if that is
        impossible."""
        pauses = Pauses(self._rng)
        value = encode_record(record)
        while True:
            metadata = self._metadata
            try:
                if metadata is not None:
                    number = metadata_partition(_of(record), metadata.partitions)
                    await self._link.append(number, value, record.event_timestamp_ms)
                    return
            except ApiError as error:
                if not error.code.retriable:
                    raise
                self._grumble("cannot write", error)
            except FAILURES as error:
                self._grumble("cannot write", error)
            await self._pause(pauses)

    def _fail_writers(self, concerned: Callable[[TierRecord], bool], why: str = "") -> None:
        for record, futures in list(self._waiting.items()):
            if concerned(record):
                for future in futures:
                    if not future.done():
                        text = why or f"{_of(record)} was given up"
                        future.set_exception(TierUnavailable(text))
                        # Mark the exception as retrieved: there may be no writer left.
                        future.exception()

    # The topic -------------------------------------------------------------------------------

    def published(self) -> None:
        """Apply a new metadata image."""
        news, self._news = self._news, asyncio.Event()
        news.set()
        self._link.published()
        topic = self._link.topic()
        if self._metadata is None:
            return
        if topic is None or topic.topic_id != self._topic_id:
            _log.warning("the topic was deleted, all it contained is dropped", topic=METADATA_TOPIC)
            self._topic_gone(topic)
        self._kick()

    def _topic_gone(self, following: MetadataTopic | None) -> None:
        """Drop all state after the topic was deleted. `following` is the new topic of that name;
        without one, the topic is created again."""
        self._metadata = None
        self._unready.clear()
        for number, watch in self._watches.items():
            self._watches[number] = _Watch(watch.changed)
        self._fail_writers(lambda record: True, f"{METADATA_TOPIC} was deleted")
        if following is not None:
            self._open(following)
        elif self._taken or self._watches:
            self._run("topic", self._find_topic)
        for partition in list(self._taken.values()):
            self._tell(partition)

    def _lost_end(self, metadata: RemoteMetadata, number: int, life: int) -> None:
        """Read one of the topic's partitions again after it has lost its end (see the module).
        Ignored if the loss was already handled."""
        if metadata is not self._metadata or metadata.life(number) != life:
            return
        _log.warning(
            "the topic has lost its end, reading it again",
            topic=METADATA_TOPIC,
            partition=number,
            read_to=metadata.seen_to(number),
        )
        gone = metadata.lost_end(number)
        self._unready[number] = {partition.identity: partition for partition in gone}
        watch = self._watches.get(number)
        if watch is not None:
            self._watches[number] = _Watch(watch.changed)
        self._fail_writers(
            lambda record: metadata_partition(_of(record), metadata.partitions) == number,
            f"{METADATA_TOPIC}-{number} has lost its end",
        )
        self._want_end(number)
        for partition in gone:
            self._tell(partition)

    async def _find_topic(self) -> None:
        pauses = Pauses(self._rng)
        while self._metadata is None:
            topic = self._link.topic()
            if topic is not None:
                self._open(topic)
                return
            try:
                await self._create_topic()
            except FAILURES as error:
                self._grumble("cannot create the topic", error)
            if self._link.topic() is None:
                await self._pause(pauses)

    def _open(self, topic: MetadataTopic) -> None:
        """Start reading a topic from its beginning."""
        self._topic_id = topic.topic_id
        metadata = self._metadata = RemoteMetadata(topic.partitions)
        self._unready.clear()
        for partition in self._taken.values():
            self._begin(metadata, partition)
        for number, watch in self._watches.items():
            self._watches[number] = _Watch(watch.changed)
            self._begin_watch(metadata, number)

    def _begin(self, metadata: RemoteMetadata, partition: RemotePartition) -> None:
        number = metadata.take(partition)
        self._unready[number][partition.identity] = partition
        self._want_end(number)

    def _begin_watch(self, metadata: RemoteMetadata, number: int) -> None:
        metadata.watch(number)
        self._want_end(number)

    def _want_end(self, number: int) -> None:
        self._ends_wanted[number] = self._ends_wanted.get(number, 0) + 1
        self._kick()

    async def _learn_end(self, number: int) -> None:
        """Query the end of one of the topic's partitions, at a time after the last `take`."""
        pauses = Pauses(self._rng)
        while True:
            wanted, metadata = self._ends_wanted[number], self._metadata
            life = 0 if metadata is None else metadata.life(number)
            seen_to = 0 if metadata is None else metadata.seen_to(number)
            try:
                end = await self._link.bound(number, LATEST)
            except FAILURES as error:
                self._grumble("cannot ask for its end", error)
                await self._pause(pauses)
                continue
            if metadata is not None and end < seen_to:
                self._lost_end(metadata, number, life)
                await self._pause(pauses)
                continue
            if wanted == self._ends_wanted[number]:
                break
        self._ends_learned[number] = wanted
        if self._metadata is not None:
            self._metadata.end_known(number, end)
        watch = self._watches.get(number)
        if watch is not None:
            watch.ends_at(end)
        self._look_ready(number)

    # Reading ---------------------------------------------------------------------------------

    def _kick(self) -> None:
        """Start the tasks that read the required partitions and query their ends."""
        if self._metadata is None:
            return
        for number, wanted in self._ends_wanted.items():
            if self._ends_learned.get(number) != wanted:
                self._run(f"end {number}", partial(self._learn_end, number))
        for leader in sorted({self._link.leader(one) for one in self._metadata.wanted()}):
            if leader >= 0:
                for catching_up in (False, True):
                    if self._to_read(leader, catching_up):
                        name = f"{'catch up with' if catching_up else 'read'} {leader}"
                        self._run(name, partial(self._read_from, leader, catching_up))

    def _to_read(self, leader: int, catching_up: bool) -> dict[int, ReadFrom]:
        """Return the topic's partitions that the next read requests, and the offset where each
        begins.

        The read that waits for news requests the ready partitions. The catch-up read requests the
        rest, and those that are not yet in the first read.
        """
        metadata = self._metadata
        if metadata is None:
            return {}
        offsets = {
            number: ReadFrom(at, metadata.epoch_before(number, at))
            for number, at in metadata.wanted().items()
            if self._link.leader(number) == leader
        }
        if not catching_up:
            return {one: at for one, at in offsets.items() if not self._unready.get(one)}
        awaited = self._awaited.get(leader, frozenset())
        return {
            one: at for one, at in offsets.items() if self._unready.get(one) or one not in awaited
        }

    async def _read_from(self, leader: int, catching_up: bool) -> None:
        """Read all required partitions of one leader, until none is left."""
        pauses = Pauses(self._rng)
        while True:
            offsets, metadata = self._to_read(leader, catching_up), self._metadata
            if not catching_up:
                self._awaited[leader] = frozenset(offsets)
            if metadata is None or not offsets:
                return
            lives = {number: metadata.life(number) for number in offsets}
            try:
                reads = await self._link.read(leader, offsets, catching_up=catching_up)
                good = [await self._take_over(metadata, one, lives[one.number]) for one in reads]
            except FAILURES as error:
                self._grumble("cannot read", error)
                await self._pause(pauses)
                continue
            except Exception as error:  # noqa: BLE001 - whatever stands in the topic
                self._supervisor.survive("remote log metadata", error, leader=leader)
                await self._pause(pauses)
                continue
            if all(good):
                pauses.reset()
            elif not any(read.records for read in reads):
                await self._pause(pauses)

    async def _take_over(self, metadata: RemoteMetadata, read: MetadataRead, life: int) -> bool:
        """Apply a read that was requested in incarnation `life` of the topic's partition: each lost
        end begins another one.

        Returns:
            True if the read was valid.
        """
        number, at = read.number, read.asked_offset
        if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self._link.bound(number, EARLIEST)
            if start <= at:
                self._lost_end(metadata, number, life)
                return False
            # Retention has deleted the records there; the remaining ones begin at `start`.
            if metadata.life(number) == life:
                metadata.begins_at(number, start)
            self._replay(metadata, number, life, at, [], start)
            return True
        if read.error is not ErrorCode.NONE:
            self._grumble("cannot read", ApiError(read.error, None))
            return False
        if read.diverges or not metadata.note_epochs(number, at, read.epochs, life):
            self._lost_end(metadata, number, life)
            return False
        records = read.records
        for first in range(0, len(records), REPLAYED_AT_ONCE):
            chunk = records[first : first + REPLAYED_AT_ONCE]
            following = chunk[-1][0] + 1
            self._replay(metadata, number, life, at, chunk, following)
            at = following
            await asyncio.sleep(0)
        self._replay(metadata, number, life, at, [], read.next_offset)
        return True

    def _replay(
        self,
        metadata: RemoteMetadata,
        number: int,
        life: int,
        at: int,
        records: Sequence[tuple[int, bytes | None]],
        following: int,
    ) -> None:
        if metadata is not self._metadata or metadata.life(number) != life:
            return
        replayed = metadata.replay(number, at, records, following)
        watch = self._watches.get(number)
        changed: dict[RemotePartition, None] = {}
        for one in replayed:
            record = one.record
            if record is None:
                _log.warning("a record that is none", topic=METADATA_TOPIC, partition=number)
                continue
            if watch is not None and isinstance(record, PartitionDeletion):
                watch.saw(record)
            if one.outcome is None:
                continue
            self._answer_writers(record, one.outcome)
            if one.outcome.changed:
                changed[_of(record)] = None
        if watch is not None:
            watch.got_to(metadata.wanted()[number])
        fresh = self._look_ready(number)
        for partition in changed:
            if partition.identity not in fresh and metadata.cache(partition) is not None:
                self._tell(partition)

    def _answer_writers(self, record: TierRecord, outcome: Outcome) -> None:
        if not self._waiting:
            return  # comparing records takes time, and a start replays very many
        for future in self._waiting.pop(record, ()):
            if not future.done():
                future.set_result(outcome)

    def _look_ready(self, number: int) -> set[tuple[TopicId, int]]:
        """Notify the subscribers of partitions whose caches have become ready; return their
        identities."""
        unready = self._unready.get(number)
        fresh = [one for one in (unready or {}).values() if self.leaders_cache(one) is not None]
        for partition in fresh:
            self._unready[number].pop(partition.identity, None)
            self._tell(partition)
        if fresh:
            self._have_moved()
            self._kick()
        return {partition.identity for partition in fresh}

    def _tell(self, partition: RemotePartition) -> None:
        known = self._taken.get(partition.identity)
        if known is not None:
            for callback in self._subscribers:
                callback(known)

    # Tasks -----------------------------------------------------------------------------------

    def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` unless a task with this name is running."""
        if self._closed or name in self._tasks:
            return
        task = self._supervisor.spawn(f"tier metadata: {name}", work(), fatal=False)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if task.cancelled() or self._closed:
            return
        error = task.exception()
        if error is not None:
            self._supervisor.survive("remote log metadata", error)
        self._kick()  # new work may have been requested when the task was about to end

    async def _pause(self, pauses: Pauses) -> None:
        """Wait for a backoff that grows, or until the next metadata image."""
        try:
            async with asyncio.timeout(pauses.next_s()):
                await self._news.wait()
        except TimeoutError:
            return

    def _grumble(self, what: str, error: BaseException) -> None:
        held_back = self._quiet.admit(what)
        if held_back is not None:
            _log.warning(
                f"{what}, trying again",
                topic=METADATA_TOPIC,
                error=str(error),
                held_back=held_back,
            )

    async def close(self) -> None:
        """Stop reading, and fail all waiting writers."""
        self._closed = True
        self._taken.clear()
        self._times_taken.clear()
        self._have_moved()
        self._fail_writers(lambda record: True)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._link.close()


def _of(record: TierRecord) -> RemotePartition:
    if not isinstance(record, RemoteSegment | SegmentUpdate | PartitionDeletion):
        raise TypeError(f"{type(record).__name__} is no record of the topic")
    return record.partition


def _look_away(task: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: the record was read back in the meantime, or its writer has
    gone."""
    if not task.cancelled():
        task.exception()
