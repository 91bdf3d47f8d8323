"""Removals, with each event at each of their calls (as in `test_old_plans.py`).

Three operations: the metadata topic's leader removes the segments of a deleted topic, a partition's
leader removes them after tiering was switched off, and a replica marks a removal. At each moment:

- objects go after the DELETE_STARTED of their segment, and before its DELETE_FINISHED (S3);
- a removal is finished only without segments and objects (S10);
- a log that continues saves its start before its first segment goes (S4);
- a broker that must not remove segments any more begins no other deletion (S2);
- a replica's folder stays until the removal is marked (S10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import pytest

from storage.objects import MemoryObjects
from storage.tiered.cache import SegmentCache
from storage.tiered.layout import keys_to_delete, parse_key
from storage.tiered.records import decode_record, encode_record
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import PartitionDeletion, SegmentUpdate
from testkit.memory.broker import NODE, OTHER
from testkit.memory.tier_stops import StoppedLink, StoppedObjects, Stops
from testkit.memory.tier_topic import MemoryTopic
from testkit.memory.turns import until
from testkit.records.tier import segment, update
from tests.unit.broker.tiering.removers import OFF, REMOTE, TIERED, Broker, remote_segments

LATE = segment(3, 20, 29, partition=REMOTE)
KEPT = segment(4, 30, 39, partition=REMOTE)


class StoppedBroker(Broker):
    """A broker with stopping points at the calls of its removals."""

    def __init__(self, room: Room, node_id: int) -> None:
        self.stops = Stops()
        self.saves = 0
        objects = StoppedObjects(room.bucket, self.stops)
        super().__init__(
            room.topic, objects, node_id=node_id, link=StoppedLink(room.topic, self.stops)
        )

    async def save_log_starts(self) -> None:
        await self.stops("save")
        self.saves += 1
        await self.stops("has saved")


class Topic(MemoryTopic):
    """The metadata topic; each new record is compared with the laws."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[bytes], None] = lambda value: None

    def add(self, number: int, value: bytes) -> int:
        self.look(value)
        return super().add(number, value)


class Bucket(MemoryObjects):
    """The bucket; each deletion of an object that exists is compared with the laws."""

    look: Callable[[set[bytes]], None] = staticmethod(lambda segment_ids: None)

    async def delete(self, keys: Sequence[str]) -> None:
        places = [parse_key(key) for key in keys if key in self.keys]
        self.look({place.segment_id for place in places if place is not None})
        await super().delete(keys)


class Room:
    """A partition with a finished copy and one under way, and two brokers with a replica of it."""

    def __init__(self) -> None:
        self.topic, self.bucket = Topic(), Bucket()
        self.first, self.other = StoppedBroker(self, NODE), StoppedBroker(self, OTHER)
        self.first.stops.open = False
        self.other.stops.close()
        self.clears = False
        self.lost_records = False
        self.injects = False
        """True while an event writes a record."""
        self.begun_late: list[SegmentUpdate] | None = None
        """Deletions that began after this broker had to stop; None: it goes on."""

    @property
    def both(self) -> tuple[StoppedBroker, StoppedBroker]:
        return self.first, self.other

    async def begin(self, operation: Operation) -> None:
        for each in self.both:
            each.create_topic(
                configs={**TIERED, **OFF}, replicas=[NODE, OTHER], isr=[NODE, OTHER], leader=NODE
            )
        await remote_segments(self.first, self.bucket)
        self.topic.look, self.bucket.look = self.record_is_added, self.objects_go
        await operation(self)

    @property
    def truth(self) -> SegmentCache:
        cache = SegmentCache(REMOTE)
        for at, value in enumerate(self.topic.logs[0]):
            cache.apply(at, decode_record(value))
        return cache

    # Laws ------------------------------------------------------------------------------------

    def record_is_added(self, value: bytes) -> None:
        record, truth = decode_record(value), self.truth
        if self.injects or truth.refusal(record):
            return
        if isinstance(record, PartitionDeletion):
            if record.state is PartitionDeleteState.FINISHED:
                assert not len(truth), "S10: finished with segments"
                assert not self.bucket.keys, "S10: finished with objects"
        elif record.state is SegmentState.DELETE_STARTED:
            assert not self.clears or self.first.saves or self.other.saves, "S4"
            if self.begun_late is not None and record.broker_id == NODE:
                assert isinstance(record, SegmentUpdate)
                self.begun_late.append(record)
        elif record.state is SegmentState.DELETE_FINISHED:
            keys = set(self.bucket.keys)
            found = truth.get(record.segment_id)
            assert found is not None
            assert not keys & set(keys_to_delete(found)), "S3: an object is left"

    def objects_go(self, segment_ids: set[bytes]) -> None:
        if self.lost_records:
            return
        for one in segment_ids:
            found = self.truth.get(one)
            assert found is not None and found.state is SegmentState.DELETE_STARTED, "S3"

    def folder_goes(self) -> None:
        assert self.lost_records or self.truth.deletion is not None, "S10: not marked"

    # Events ----------------------------------------------------------------------------------

    async def another_removal_finishes_a_segment(self) -> None:
        found = next(iter(self.truth.segments()), None)
        if found is not None:
            number = found.segment_id[-1]
            self._add(update(number, SegmentState.DELETE_STARTED, partition=REMOTE))
            await self.bucket.delete(keys_to_delete(found))
            self._add(update(number, SegmentState.DELETE_FINISHED, partition=REMOTE))

    async def another_removal_begins_a_segment(self) -> None:
        for found in self.truth.segments():
            self._add(update(found.segment_id[-1], SegmentState.DELETE_STARTED, partition=REMOTE))

    async def copy_under_way_is_finished(self) -> None:
        self._add(update(2, SegmentState.COPY_FINISHED, partition=REMOTE))

    async def copy_begins_late(self) -> None:
        """Commit the COPY_STARTED that an earlier leader wrote. After a mark, brokers refuse it."""
        if self.truth.deletion is None:
            for key in keys_to_delete(LATE):
                await self.bucket.put(key, b"data")
        self._add(LATE)

    async def leader_changes(self) -> None:
        """Elect the other broker as the leader of the partition and of the metadata topic."""
        self.topic.leaders[0] = OTHER
        if not self.clears:
            self.first.remover.resigned(0, 6)
            self.other.remover.elected(0, 6)
        for each in self.both:
            each.journal.published()
            if each.metadata.topic("t") is not None:
                each.change(leader=OTHER)
        self.begun_late = []

    async def leader_changes_back(self) -> None:
        await self.leader_changes()
        self.topic.leaders[0] = NODE
        if not self.clears:
            self.other.remover.resigned(0, 7)
            self.first.remover.elected(0, 7)
        for each in self.both:
            each.journal.published()
            if each.metadata.topic("t") is not None:
                each.change(leader=NODE)
        self.begun_late = None

    async def removal_finishes_elsewhere(self) -> None:
        await self.leader_changes()
        await until(lambda: not self.other.remover._tasks and not len(self.truth))

    async def partition_is_taken_on_again(self) -> None:
        self.first.journal.give_up(REMOTE)
        self.first.journal.take(REMOTE)

    async def topic_loses_its_end(self) -> None:
        """Lose the last record, if the removal still is known after that."""
        kept = len(self.topic.logs[0]) - 1
        marks = (isinstance(decode_record(one), PartitionDeletion) for one in self.topic.logs[0])
        least = next((at + 1 for at, is_mark in enumerate(marks) if is_mark), 3)
        self.lost_records = True
        self.topic.lose_end(0, max(kept, least))

    async def topic_is_made_anew(self) -> None:
        self.lost_records = True
        self.topic.made_anew()
        for each in self.both:
            each.journal.published()

    async def tiering_begins_again(self) -> None:
        """Switch tiering on again; the leader copies a segment."""
        for each in self.both:
            each.set_config("t", "remote.storage.enable", "true")
        for key in keys_to_delete(KEPT):
            await self.bucket.put(key, b"data")
        self._add(KEPT)
        self._add(update(4, SegmentState.COPY_FINISHED, partition=REMOTE))
        self.begun_late = []

    async def tiering_begins_and_ends_again(self) -> None:
        await self.tiering_begins_again()
        for each in self.both:
            each.set_config("t", "remote.storage.enable", "false")
        self.begun_late = None

    async def copies_are_to_stay(self) -> None:
        for each in self.both:
            each.set_config("t", "remote.log.delete.on.disable", "false")
        self.begun_late = []

    def _add(self, record: object) -> None:
        self.injects = True
        self.topic.add(0, encode_record(record))  # type: ignore[arg-type]
        self.injects = False

    async def close(self) -> None:
        for each in self.both:
            each.stops.close()
            await each.close()


Event = Callable[[Room], Awaitable[None]]
Operation = Callable[[Room], Awaitable[None]]


async def removing(room: Room) -> None:
    """Delete the topic, and elect this broker as the metadata topic's leader."""
    for each in room.both:
        each.delete_topic()
    await until(lambda: not any(each.logs.strays for each in room.both))
    room.first.stops.open = True
    room.first.remover.elected(0, 5)
    await until(lambda: bool(room.first.remover._tasks) or room.first.stops.happened)


async def clearing(room: Room) -> None:
    """Switch tiering off at the partition's leader."""
    room.clears = True
    room.first.stops.open = True
    for each in room.both:
        each.set_config("t", "remote.storage.enable", "false")


async def marking(room: Room) -> None:
    """Delete the topic at one of its replicas."""
    removed = room.first.logs.remove_stray

    def remove_stray(folder: str) -> None:
        room.folder_goes()
        removed(folder)

    room.first.logs.remove_stray = remove_stray  # type: ignore[method-assign]
    room.first.stops.open = True
    room.first.delete_topic()


async def another_replica_marks(room: Room) -> None:
    room.other.delete_topic()
    await until(lambda: room.other.logs.strays == [])


async def removal_is_over(room: Room) -> None:
    """Mark and remove all at the other broker."""
    await another_replica_marks(room)
    room.topic.leaders[0] = OTHER
    room.other.remover.elected(0, 5)
    await until(lambda: room.truth.deletion is PartitionDeleteState.FINISHED)
    room.other.remover.resigned(0, 6)


ALWAYS: tuple[Event, ...] = (
    Room.another_removal_finishes_a_segment,
    Room.another_removal_begins_a_segment,
    Room.copy_under_way_is_finished,
    Room.copy_begins_late,
    Room.leader_changes,
    Room.leader_changes_back,
    Room.removal_finishes_elsewhere,
    Room.partition_is_taken_on_again,
    Room.topic_loses_its_end,
    Room.topic_is_made_anew,
)
TABLE: dict[Operation, tuple[Event, ...]] = {
    removing: ALWAYS,
    clearing: (
        *ALWAYS,
        Room.tiering_begins_again,
        Room.tiering_begins_and_ends_again,
        Room.copies_are_to_stay,
    ),
    marking: (
        Room.copy_under_way_is_finished,
        Room.copy_begins_late,
        Room.partition_is_taken_on_again,
        Room.topic_loses_its_end,
        Room.topic_is_made_anew,
        another_replica_marks,
        removal_is_over,
    ),
}
ENDS_EARLY = (Room.tiering_begins_again, Room.copies_are_to_stay, Room.topic_is_made_anew)
"""Events after which segments stay."""


def is_idle(room: Room) -> bool:
    return not any(each.remover._tasks or each.roles._marking for each in room.both)


async def check(room: Room, operation: Operation, event: Event) -> None:
    await until(lambda: is_idle(room))
    if operation is marking:
        assert room.first.logs.strays == []
        return
    if event is Room.tiering_begins_again:
        await until(lambda: knows_kept(room))
    if event not in ENDS_EARLY:
        await until(lambda: not len(room.truth) and is_idle(room))
        assert not room.bucket.keys, "S10: an object is left"
        if operation is removing:  # the end of the topic may be lost again
            finished = PartitionDeleteState.FINISHED
            await until(lambda: room.truth.deletion is finished and is_idle(room))
    if room.begun_late is not None:
        assert len(room.begun_late) <= 1, "S2: a deletion begins after the work has ended"
    if event is Room.tiering_begins_again:
        found = room.truth.get(KEPT.segment_id)
        assert found is not None and found.state is SegmentState.COPY_FINISHED, "S2"
        assert set(keys_to_delete(KEPT)) <= set(room.bucket.keys), "S2"


def knows_kept(room: Room) -> bool:
    cache = room.first.journal.cache(REMOTE)
    return cache is not None and cache.get(KEPT.segment_id) is not None and is_idle(room)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "event"),
    [(operation, event) for operation, events in TABLE.items() for event in events],
    ids=lambda one: one.__name__,
)
async def test_removal_holds_its_promises_whatever_happens_at_one_of_its_calls(
    operation: Operation, event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2, S3, S4, S10: no event at any call of a removal breaks a promise."""
    monkeypatch.setattr("broker.tiering.pauses.PAUSE_MS", 0.0)
    for number in count():
        room = Room()
        if event is Room.topic_loses_its_end:
            room.first.journal.writer.consume_wait_ms = 200  # a writer may wait for its lost record
        stops = room.first.stops
        stops.at(number, lambda room=room: event(room))  # type: ignore[misc]
        where = "?"
        try:
            async with asyncio.timeout(20):
                await room.begin(operation)
                await until(lambda room=room: room.first.stops.open and is_idle(room))  # type: ignore[misc]
                stops.close()
                where = f"at call {number}, {stops.taken[number : number + 1]}"
                if stops.happened:
                    await check(room, operation, event)
            await room.close()
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{where}, {stops.taken[: number + 1]}: {error!r}") from error
        if not stops.happened:
            assert number > 4
            return
