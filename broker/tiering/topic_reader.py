"""Shell: Reads of the required partitions of the metadata topic, one request for all of a leader.

A partition of the topic may lose its end, and the topic may be deleted. Then the caches contain
records that no broker has any more. The reader drops these caches and notifies their subscribers in
the same event-loop iteration, so that no local segment is deleted because of such a record. It
fails the writers, and reads the remaining records from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.tiering.journal_tasks import JournalTasks
from broker.tiering.record_writer import RecordWriter, partition_of
from broker.tiering.removal_watches import RemovalWatches
from broker.tiering.taken_partitions import TakenPartitions
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
from runtime.log import get_logger
from storage.tiered.metadata import RemoteMetadata
from storage.tiered.records import METADATA_TOPIC, metadata_partition
from storage.tiered.values import PartitionDeletion, RemotePartition

REPLAYED_AT_ONCE: Final = 64
"""Records per event-loop iteration: some milliseconds."""

_log = get_logger("broker.tier")


class TopicReader:
    """The reader of one journal. It passes records to the journal's partitions, removal watches and
    writers."""

    def __init__(
        self,
        link: MetadataLink,
        tasks: JournalTasks,
        taken: TakenPartitions,
        watches: RemovalWatches,
        writer: RecordWriter,
    ) -> None:
        self.metadata: RemoteMetadata | None = None
        """All that was read; None while the topic does not exist."""
        self._topic_id: TopicId | None = None
        self._link = link
        self._tasks = tasks
        self._taken = taken
        self._watches = watches
        self._writer = writer
        self._awaited: dict[int, frozenset[int]] = {}
        """By leader: partitions of the topic in the read that waits for news."""
        self._ends_wanted: dict[int, int] = {}
        """By partition of the topic: how often its end was requested."""
        self._ends_learned: dict[int, int] = {}
        """By partition of the topic: the newest such request that was answered."""

    # The topic -------------------------------------------------------------------------------

    def reads(self, topic: MetadataTopic | None) -> bool:
        """Return whether this is the incarnation of the topic that is being read."""
        return topic is not None and topic.topic_id == self._topic_id

    def open(self, topic: MetadataTopic) -> None:
        """Start reading a topic from its beginning."""
        self._topic_id = topic.topic_id
        self.metadata = RemoteMetadata(topic.partitions)
        self._taken.clear_unready()
        for partition in self._taken:
            self.take(partition)
        for number in self._watches:
            self._watches.begin_again(number)
            self.watch(number)

    def drop(self) -> None:
        """Drop all that was read, after the topic was deleted."""
        self.metadata = None
        self._taken.clear_unready()
        for number in self._watches:
            self._watches.begin_again(number)

    def take(self, partition: RemotePartition) -> None:
        """Read the records of a partition, once the topic is open."""
        if self.metadata is not None:
            number = self.metadata.take(partition)
            self._taken.add_unready(number, partition)
            self._want_end(number)

    def lead(self, partition: RemotePartition) -> None:
        """Read what was written for a partition before this broker led it."""
        if self.metadata is not None:
            number = self.metadata.lead(partition)
            self._taken.add_unready(number, partition)
            self._want_end(number)

    def watch(self, number: int) -> None:
        """Read a partition of the topic for its removals, once the topic is open."""
        if self.metadata is not None:
            self.metadata.watch(number)
            self._want_end(number)

    def _lost_end(self, metadata: RemoteMetadata, number: int, life: int) -> None:
        """Read one of the topic's partitions again after it has lost its end (see the module).
        Ignored if the loss was already handled."""
        if metadata is not self.metadata or metadata.life(number) != life:
            return
        _log.warning(
            "the topic has lost its end, reading it again",
            topic=METADATA_TOPIC,
            partition=number,
            read_to=metadata.seen_to(number),
        )
        gone = metadata.lost_end(number)
        self._taken.replace_unready(number, gone)
        self._watches.begin_again(number)
        self._writer.fail(
            lambda partition: metadata_partition(partition, metadata.partitions) == number,
            f"{METADATA_TOPIC}-{number} has lost its end",
        )
        self._want_end(number)
        for partition in gone:
            self._taken.notify(partition)

    # Ends ------------------------------------------------------------------------------------

    def _want_end(self, number: int) -> None:
        self._ends_wanted[number] = self._ends_wanted.get(number, 0) + 1
        self.start()

    async def _learn_end(self, number: int) -> None:
        """Query the end of one of the topic's partitions, at a time after the last `take`."""
        pauses = self._tasks.backoff()
        while True:
            wanted, metadata = self._ends_wanted[number], self.metadata
            life = 0 if metadata is None else metadata.life(number)
            seen_to = 0 if metadata is None else metadata.seen_to(number)
            try:
                end = await self._link.bound(number, LATEST)
            except FAILURES as error:
                self._tasks.warn("cannot query its end", error)
                await self._tasks.pause(pauses)
                continue
            if metadata is not None and end < seen_to:
                self._lost_end(metadata, number, life)
                await self._tasks.pause(pauses)
                continue
            if wanted == self._ends_wanted[number]:
                break
        self._ends_learned[number] = wanted
        if self.metadata is not None:
            self.metadata.end_known(number, end)
        watch = self._watches.get(number)
        if watch is not None:
            watch.ends_at(end)
        self._look_ready(number)

    # Reading ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks that read the required partitions and query their ends."""
        if self.metadata is None:
            return
        for number, wanted in self._ends_wanted.items():
            if self._ends_learned.get(number) != wanted:
                self._tasks.run(f"end {number}", partial(self._learn_end, number), self.start)
        for leader in sorted({self._link.leader(one) for one in self.metadata.wanted()}):
            if leader >= 0:
                for catching_up in (False, True):
                    if self._to_read(leader, catching_up):
                        name = f"{'catch up with' if catching_up else 'read'} {leader}"
                        read = partial(self._read_from, leader, catching_up)
                        self._tasks.run(name, read, self.start)

    def _to_read(self, leader: int, catching_up: bool) -> dict[int, ReadFrom]:
        """Return the topic's partitions that the next read requests, and the offset where each
        begins.

        The read that waits for news requests the ready partitions. The catch-up read requests the
        rest, and those that are not yet in the first read.
        """
        metadata, unready = self.metadata, self._taken.unready
        if metadata is None:
            return {}
        offsets = {
            number: ReadFrom(at, metadata.epoch_before(number, at))
            for number, at in metadata.wanted().items()
            if self._link.leader(number) == leader
        }
        if not catching_up:
            return {one: at for one, at in offsets.items() if not unready(one)}
        awaited = self._awaited.get(leader, frozenset())
        return {one: at for one, at in offsets.items() if unready(one) or one not in awaited}

    async def _read_from(self, leader: int, catching_up: bool) -> None:
        """Read all required partitions of one leader, until none is left."""
        pauses = self._tasks.backoff()
        while True:
            offsets, metadata = self._to_read(leader, catching_up), self.metadata
            if not catching_up:
                self._awaited[leader] = frozenset(offsets)
            if metadata is None or not offsets:
                return
            lives = {number: metadata.life(number) for number in offsets}
            try:
                reads = await self._link.read(leader, offsets, catching_up=catching_up)
                good = [await self.take_over(metadata, one, lives[one.number]) for one in reads]
            except FAILURES as error:
                self._tasks.warn("cannot read", error)
                await self._tasks.pause(pauses)
                continue
            except Exception as error:  # noqa: BLE001 - the topic may contain any bytes
                self._tasks.survive(error, leader=leader)
                await self._tasks.pause(pauses)
                continue
            if all(good):
                pauses.reset()
            elif not any(read.records for read in reads):
                await self._tasks.pause(pauses)

    async def take_over(self, metadata: RemoteMetadata, read: MetadataRead, life: int) -> bool:
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
            self._tasks.warn("cannot read", ApiError(read.error, None))
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
        if metadata is not self.metadata or metadata.life(number) != life:
            return
        replayed = metadata.replay(number, at, records, following)
        watch = self._watches.get(number)
        changed: dict[RemotePartition, None] = {}
        for one in replayed:
            record = one.record
            if record is None:
                _log.warning(
                    "ignoring unreadable remote log metadata record",
                    topic=METADATA_TOPIC,
                    partition=number,
                )
                continue
            if watch is not None and isinstance(record, PartitionDeletion):
                watch.saw(record)
            if one.outcome is None:
                continue
            self._writer.answer(record, one.outcome)
            if one.outcome.changed:
                changed[partition_of(record)] = None
        if watch is not None:
            watch.got_to(metadata.wanted()[number])
        fresh = self._look_ready(number)
        for partition in changed:
            if partition.identity not in fresh and metadata.cache(partition) is not None:
                self._taken.notify(partition)

    def _look_ready(self, number: int) -> set[tuple[TopicId, int]]:
        """Notify the subscribers of partitions whose caches have become ready; return their
        identities."""
        metadata = self.metadata
        fresh = [
            one
            for one in self._taken.unready(number)
            if metadata is not None and metadata.leaders_cache(one) is not None
        ]
        for partition in fresh:
            self._taken.become_ready(number, partition)
        if fresh:
            self._taken.wake()
            self.start()
        return {partition.identity for partition in fresh}
