"""Shell: Journal of remote segments: one broker's reader and writer of `__remote_log_metadata`.

`topic_reader.py` reads the required partitions of the topic from their leaders, `record_writer.py`
writes a record and waits for its outcome. The journal creates the topic when the first partition is
taken on, and drops all state when the topic is deleted.

A partition's cache is not returned before the journal has reached the topic's end as of taking the
partition on (see `storage/tiered/metadata.py`).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from broker.tiering.journal_tasks import JournalTasks
from broker.tiering.record_writer import RecordWriter, TierUnavailable, partition_of
from broker.tiering.removal_watches import RemovalWatches
from broker.tiering.taken_partitions import Subscriber, TakenPartitions
from broker.tiering.topic_link import FAILURES, MetadataLink, MetadataTopic
from broker.tiering.topic_reader import TopicReader
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.records import METADATA_TOPIC, metadata_partition
from storage.tiered.values import RemotePartition, TierRecord

_log = get_logger("broker.tier")


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
        self.taken = TakenPartitions()
        self.watches = RemovalWatches()
        self._link = link
        self._create_topic = create_topic
        self._tasks = JournalTasks(supervisor, clock=clock, rng=rng)
        self.writer = RecordWriter(
            link, self._tasks, number_of=self._number_of, consume_wait_ms=consume_wait_ms
        )
        self.reader = TopicReader(link, self._tasks, self.taken, self.watches, self.writer)

    # Partitions ------------------------------------------------------------------------------

    def take(self, partition: RemotePartition) -> None:
        """Take a partition on for one more component; it is read until as many have released it."""
        if not self._tasks.closed and self.taken.add(partition):
            self._read(lambda: self.reader.take(partition))

    def lead(self, partition: RemotePartition) -> None:
        """Note that this broker leads a partition that was taken on: see `leaders_cache`."""
        if partition in self.taken:
            self.reader.lead(partition)

    def give_up(self, partition: RemotePartition) -> None:
        """Release a partition for one component. After the last one, writers of its records
        fail."""
        if not self.taken.remove(partition):
            return
        if self.reader.metadata is not None:
            self.reader.metadata.give_up(partition)
        self.writer.fail(lambda other: other.identity == partition.identity)
        self.taken.wake()

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache of a partition, or None until it is complete enough to act on."""
        metadata = self.reader.metadata
        return None if metadata is None else metadata.cache(partition)

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache for the partition's leader, or None until it contains all that was
        written before this broker led, so that no segment is copied twice (S6)."""
        metadata = self.reader.metadata
        return None if metadata is None else metadata.leaders_cache(partition)

    async def ready(self, partition: RemotePartition) -> SegmentCache:
        """Return the cache of a partition that was taken on, once it is complete enough to act on.
        Raises TierUnavailable if the partition is released first."""
        while True:
            if partition not in self.taken:
                raise TierUnavailable(f"{partition} is not this broker's")
            cache = self.cache(partition)
            if cache is not None:
                return cache
            await self.taken.moved()

    def subscribe(self, callback: Subscriber) -> None:
        """Register a callback for each partition whose cache has become ready or has changed."""
        self.taken.subscribe(callback)

    def leader(self, partition: RemotePartition) -> int:
        """Return the leader of the topic's partition with the records of `partition`, or -1 without
        one."""
        number = self._number_of(partition)
        return -1 if number is None else self._link.leader(number)

    def _number_of(self, partition: RemotePartition) -> int | None:
        """Return the topic's partition with the records of `partition`; None without a topic."""
        metadata = self.reader.metadata
        return None if metadata is None else metadata_partition(partition, metadata.partitions)

    # Removals --------------------------------------------------------------------------------

    def watch(self, number: int, changed: Callable[[], None]) -> None:
        """Search a partition of the topic for removals; `changed` is called when `removals`
        changes."""
        self.watches.add(number, changed)
        self._read(lambda: self.reader.watch(number))

    def unwatch(self, number: int) -> None:
        self.watches.remove(number)
        if self.reader.metadata is not None:
            self.reader.metadata.unwatch(number)

    def removals(self) -> list[RemotePartition]:
        """Return partitions whose removal is marked and not finished, as far as it is known."""
        return self.watches.removals()

    # Writing ---------------------------------------------------------------------------------

    async def write(self, record: TierRecord) -> Outcome:
        """Write a record of a partition that was taken on, and wait until it is read back.

        Raises:
            TierUnavailable: the record was not written or not read back in time, or the partition
                was released. The cache shows the result later.
        """
        partition = partition_of(record)
        if partition not in self.taken or self._tasks.closed:
            raise TierUnavailable(f"{partition} is not this broker's")
        return await self.writer.write(record)

    # The topic -------------------------------------------------------------------------------

    def published(self) -> None:
        """Apply a new metadata image."""
        self._tasks.image_published()
        self._link.published()
        topic = self._link.topic()
        if self.reader.metadata is None:
            return
        if not self.reader.reads(topic):
            _log.warning("the topic was deleted, all it contained is dropped", topic=METADATA_TOPIC)
            self._topic_gone(topic)
        self.reader.start()

    def _topic_gone(self, following: MetadataTopic | None) -> None:
        """Drop all state after the topic was deleted. `following` is the new topic of that name;
        without one, the topic is created again."""
        self.reader.drop()
        self.writer.fail(lambda partition: True, f"{METADATA_TOPIC} was deleted")
        if following is not None:
            self.reader.open(following)
        elif self.taken or self.watches:
            self._open_topic()
        for partition in self.taken:
            self.taken.notify(partition)

    def _read(self, begin: Callable[[], None]) -> None:
        """Begin to read something; without a topic, open that first, which begins all reads."""
        if self.reader.metadata is None:
            self._open_topic()
        else:
            begin()

    def _open_topic(self) -> None:
        self._tasks.run("topic", self._find_topic, self.reader.start)

    async def _find_topic(self) -> None:
        pauses = self._tasks.backoff()
        while self.reader.metadata is None:
            topic = self._link.topic()
            if topic is not None:
                self.reader.open(topic)
                return
            try:
                await self._create_topic()
            except FAILURES as error:
                self._tasks.warn("cannot create the topic", error)
            if self._link.topic() is None:
                await self._tasks.pause(pauses)

    async def close(self) -> None:
        """Stop reading, and fail all waiting writers."""
        self.taken.clear()
        self.taken.wake()
        self.writer.fail(lambda partition: True)
        await self._tasks.close()
        await self._link.close()
