"""Reads, lookups by time and restored files, with each event at each call of the store.

Cases are built as in `test_old_plans.py`. The result equals the log at the end of the test, or is
an error that clients retry (S1, S7, S8).
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count

import pytest

from broker.tiering.reader import RemoteReader
from broker.tiering.restoring import lacks_producers, restore_epochs, restore_producers
from protocol.batch.records import Producer, read_records
from protocol.errors import ApiError, ErrorCode
from runtime.clock import ManualClock
from storage.files import MemoryFiles
from storage.log.log import Log
from storage.objects import FaultyObjects, Weather
from storage.tiered.cache import SegmentCache
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from testkit.memory.logs import T0, append, fill, make_log
from testkit.memory.logs import batch as log_batch
from testkit.memory.tier import MemoryTier, TierRoom, done, drop_local, partition_of, tiered
from testkit.memory.tier_stops import StoppedObjects, Stops, stop_at
from testkit.records.tier import segment, update
from tests.unit.broker.tiering.transactions import end, transact


class Room:
    """Four closed segments, of which the disk has the last two.

    Producer 1 begins in the first segment and is aborted in the last; producer 2 is aborted in the
    open segment.
    """

    def __init__(self) -> None:
        self.room = TierRoom()
        self.log: Log = self.room.log
        self.stops = Stops()
        self.tier = self.room.tier
        self.tier.store.objects = StoppedObjects(self.tier.bucket, self.stops)
        stop_at(self.room.h.files, "run", self.stops)

    @property
    def reader(self) -> RemoteReader:
        return self.room.reader

    async def fill(self) -> None:
        log = self.log
        transact(log, 1)  # 0
        transact(log, 2)  # 1
        await tiered(self.tier, log)
        self.room.produce(b"a")  # 2
        await tiered(self.tier, log)
        self.room.produce(b"b")  # 3
        log.roll()
        end(log, 1, abort=True)  # 4
        log.roll()
        end(log, 2, abort=True)  # 5
        self.room.produce(b"c")  # 6
        await self.tier.copy(log)

    # Events ----------------------------------------------------------------------------------

    async def segments_leave_the_disk(self) -> None:
        drop_local(self.log)

    async def first_copy_is_deleted(self) -> None:
        """Delete the first copy; the log start advances before that (S4)."""
        self.log.advance_log_start(2)
        cache = self.tier.caches[partition_of(self.log).identity]
        first = min(cache.finished(), key=lambda one: one.start_offset)
        await self.tier.delete(first)

    async def log_start_moves(self) -> None:
        self.log.advance_log_start(1)

    async def partition_is_given_back(self) -> None:
        self.tier.caches.clear()

    async def partition_is_taken_on_again(self) -> None:
        """Take the partition again with a new cache; then segments are copied and leave the
        disk."""
        identity = partition_of(self.log).identity
        known = self.tier.caches[identity]
        fresh = self.tier.caches[identity] = SegmentCache(known.partition)
        for one in known.segments():
            fresh._segments[one.segment_id] = one
            fresh._index(one)
        self.log.roll()
        await self.tier.copy(self.log)
        drop_local(self.log)

    async def all_is_copied_and_leaves_the_disk(self) -> None:
        self.log.roll()
        await self.tier.copy(self.log)
        drop_local(self.log)

    async def log_grows(self) -> None:
        self.room.produce(b"d")
        self.log.roll()
        await self.tier.copy(self.log)

    async def log_ends(self) -> None:
        """Replace the replica's log; the old log's files are closed."""
        self.log.close()


EVENTS: tuple[Callable[[Room], Awaitable[None]], ...] = (
    Room.segments_leave_the_disk,
    Room.first_copy_is_deleted,
    Room.log_start_moves,
    Room.partition_is_given_back,
    Room.partition_is_taken_on_again,
    Room.all_is_copied_and_leaves_the_disk,
    Room.log_grows,
    Room.log_ends,
)

Operation = Callable[[Room], Awaitable[None]]


async def reading(room: Room) -> None:
    await read(room, committed=False)


async def reading_committed(room: Room) -> None:
    await read(room, committed=True)


async def read(room: Room, *, committed: bool) -> None:
    one = room.reader.read(room.log, 0, 1 << 20, committed=committed)
    await done(one)
    room.stops.close()
    if one.error is not None:
        out = one.error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert out is (room.log.log_start_offset > 0) or one.error is ErrorCode.KAFKA_STORAGE_ERROR
        return
    assert one.window is not None
    cut = one.window.cut(0, 1 << 20)
    assert cut is not None
    assert [record.value for record in read_records(cut.records)][:2] == [b"t1", b"t2"], "S1"
    if committed:
        aborted = {(txn.producer_id, txn.first_offset) for txn in cut.aborted}
        assert aborted == {(1, 0), (2, 1)}, "S7, KAFKA-17801"


async def finding_time(room: Room) -> None:
    found = await find(room, 0)
    assert found is None or found in (0, room.log.log_start_offset, 2), "S8"


async def finding_highest(room: Room) -> None:
    found = await find(room, None)
    assert found is None or found >= room.log.log_start_offset or found == 0, "S8"


async def find(room: Room, timestamp_ms: int | None) -> int | None:
    try:
        found = await room.reader.find_time(room.log, timestamp_ms)
    except ApiError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        return None
    finally:
        room.stops.close()
    assert found is not None, "there are records in the tier"
    return found.offset


OPERATIONS: tuple[Operation, ...] = (reading, reading_committed, finding_time, finding_highest)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)
async def test_read_is_right_or_refused_whatever_happens_at_one_of_its_calls(
    operation: Operation, event: Callable[[Room], Awaitable[None]]
) -> None:
    """S1, S7, S8: a read returns what the log has, or a retriable error."""
    for number in count():
        room = Room()
        await room.fill()
        room.stops.at(number, lambda room=room: event(room))  # type: ignore[misc]
        try:
            await operation(room)
        except AssertionError as error:
            raise AssertionError(
                f"at call {number}, {room.stops.taken[number]}: {error}"
            ) from error
        assert room.room.h.failures == []
        assert room.room.h.supervisor.survived == {}, f"at call {number}"
        if not room.stops.happened:
            assert number > 3
            return


# An earlier log of the same partition ---------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
async def test_error_of_an_earlier_log_is_not_returned_to_its_successor(late: bool) -> None:
    """The replica's log is another object; offset 0 is below the start of the first one alone."""
    room = Room()
    await room.fill()
    room.tier.store.objects = FaultyObjects(room.tier.bucket, room.room.h.rng, Weather(down=True))
    later = copy.copy(room.log)
    failing = room.reader.read(room.log, 0, 1, committed=False)
    if late:
        await done(failing)
        failing = room.reader.read(room.log, 2, 1, committed=False)
        await done(failing)
    room.tier.store.objects = room.tier.bucket
    found = room.reader.read(later, 0, 1, committed=False)
    assert found is not failing
    await done(found)
    assert found.error is None
    assert found.log is later


# Restored files -------------------------------------------------------------------------------


class Lost:
    """A log of epochs 0, 1 and 3 that has lost its files, and whose disk begins in epoch 3."""

    def __init__(self) -> None:
        self.tier = MemoryTier()
        self.stops = Stops()
        self.store = SegmentStore(StoppedObjects(self.tier.bucket, self.stops))
        self.log = make_log(
            MemoryFiles(), clock=ManualClock(T0), segment_bytes=300, remote_storage_enable=True
        )
        self.log.topic_id = self.log.history.topic_id = bytes(range(16))

    async def fill(self) -> None:
        log = self.log
        append(log, log_batch(size=50, producer=Producer(7, 0, 0)))
        for epoch in (0, 1, 3):
            fill(log, 4, epoch=epoch, size=50)
        log.update_high_watermark(log.log_end_offset)
        await self.tier.copy(log)
        drop_local(log, T0)
        self.true = log.epochs.entries
        self.producers = log.producers.encode_snapshot()

    @property
    def cache(self) -> SegmentCache:
        return self.tier.caches[partition_of(self.log).identity]

    async def log_is_cut(self) -> None:
        """Truncate to the log's beginning, then append another leader's records; earlier data
        stays."""
        log = self.log
        log.truncate_to(log.local_log_start_offset)
        log.append_as_follower(log_batch(base_offset=log.log_end_offset, epoch=9))

    async def log_is_cut_and_another_lineage_has_copies(self) -> None:
        """Truncate, and give another lineage copies, so that no copy certainly belongs to this
        log."""
        await self.log_is_cut()
        cache, last = self.cache, self.log.local_log_start_offset - 1
        copied = segment(900, 0, last, {0: 0, 2: 3})
        finished = update(900, SegmentState.COPY_FINISHED, partition=cache.partition)
        self.tier.apply(replace(copied, partition=cache.partition))
        self.tier.apply(finished)
        self.true = []

    async def log_ends(self) -> None:
        self.log.close()
        self.true = []

    async def copies_are_deleted(self) -> None:
        for one in list(self.cache.finished()):
            await self.tier.delete(one)

    async def more_leaves_the_disk(self) -> None:
        fill(self.log, 6, epoch=3, size=50)
        self.log.update_high_watermark(self.log.log_end_offset)
        await self.tier.copy(self.log)
        drop_local(self.log, T0)

    async def log_begins_elsewhere(self) -> None:
        """Restart the log behind its end, as in a follower that was emptied."""
        self.log.truncate_fully_and_start_at(500)
        self.true = []


RESTORED: tuple[Callable[[Lost], Awaitable[None]], ...] = (
    Lost.log_is_cut,
    Lost.log_is_cut_and_another_lineage_has_copies,
    Lost.log_ends,
    Lost.copies_are_deleted,
    Lost.more_leaves_the_disk,
    Lost.log_begins_elsewhere,
)


@pytest.mark.parametrize("event", RESTORED, ids=lambda event: event.__name__)
async def test_epochs_are_restored_from_copies_of_this_log_alone(
    event: Callable[[Lost], Awaitable[None]],
) -> None:
    """S5, F21: the data read is outdated when it arrives."""
    for number in count():
        lost = Lost()
        await lost.fill()
        log = lost.log
        log.epochs.truncate_from_start(log.local_log_start_offset, log.log_end_offset)
        lost.stops.at(number, lambda lost=lost: event(lost))  # type: ignore[misc]
        restored = await foreseen(restore_epochs(log, lost.cache, lost.store))
        lost.stops.close()
        entries = [one for one in log.epochs.entries if one.start_offset < 9]
        assert not (restored and not lost.true), f"at call {number}: of another log"
        if restored:
            known = [one for one in lost.true if one.start_offset < 9]
            assert entries[: len(known)] == known, f"at call {number}"
        if not lost.stops.happened:
            assert restored
            assert number >= 6
            return


@pytest.mark.parametrize("event", RESTORED, ids=lambda event: event.__name__)
async def test_producers_are_restored_at_the_offset_where_they_were(
    event: Callable[[Lost], Awaitable[None]],
) -> None:
    """T2, F21: producer state is restored at the offset at which it was lost."""
    for number in count():
        lost = Lost()
        await lost.fill()
        log = lost.log
        for offset in list(log.snapshots.offsets):
            log.snapshots.remove(offset)
        log.producers.clear()
        assert lacks_producers(log)
        start = log.local_log_start_offset
        lost.stops.at(number, lambda lost=lost: event(lost))  # type: ignore[misc]
        restored = await foreseen(restore_producers(log, lost.cache, lost.store))
        lost.stops.close()
        if restored:
            assert log.local_log_start_offset == start, f"at call {number}: of another offset"
            assert not log.closed
            assert log.producers.get(7) is not None
        if not lost.stops.happened:
            assert restored
            return


async def foreseen(work: Awaitable[bool]) -> bool:
    from broker.tiering.tasks import EXPECTED

    try:
        return await work
    except EXPECTED:
        return False
