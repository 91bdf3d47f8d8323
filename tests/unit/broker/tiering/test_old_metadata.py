"""The journal, with each event at each call of the metadata topic (as in `test_old_plans.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.tiering.journal import Journal
from protocol.ids import TopicId
from runtime.tasks import Supervisor
from storage.tiered.cache import SegmentCache
from storage.tiered.records import decode_record, encode_record
from storage.tiered.states import SegmentState
from testkit.memory.tier_stops import StoppedLink, Stops, stop_at
from testkit.memory.tier_topic import MemoryTopic, memory_journal
from testkit.memory.turns import until
from testkit.records.tier import PARTITION, segment, update

CALLS = 12
OTHER = PARTITION._replace(topic_id=TopicId(bytes(16)))
FIRST = (segment(1, 0, 9), update(1, SegmentState.COPY_FINISHED))
LAST = (segment(2, 10, 19), update(2, SegmentState.COPY_FINISHED))


class Room:
    """A broker that takes a partition and is elected while another one writes."""

    def __init__(self, *, exists: bool) -> None:
        self.topic = MemoryTopic(exists=exists)
        self.supervisor = Supervisor(lambda name, error: None)
        self.stops = Stops()
        stop_at(self.topic, "create", self.stops)
        self.journal: Journal = memory_journal(
            self.topic, self.supervisor, link=StoppedLink(self.topic, self.stops)
        )
        for record in FIRST:
            self.topic.add(0, encode_record(record))

    @property
    def truth(self) -> dict[bytes, SegmentState]:
        cache = SegmentCache(PARTITION)
        for at, value in enumerate(self.topic.logs[0]):
            cache.apply(at, decode_record(value))
        return known(cache)

    async def predecessor_copies_and_this_broker_is_elected(self) -> None:
        for record in LAST:
            self.topic.add(0, encode_record(record))
        self.journal.lead(PARTITION)

    async def partition_is_taken_on_again(self) -> None:
        self.journal.give_up(PARTITION)
        self.journal.take(PARTITION)
        await self.predecessor_copies_and_this_broker_is_elected()

    async def another_partition_is_taken_on(self) -> None:
        self.journal.take(OTHER)
        await self.predecessor_copies_and_this_broker_is_elected()

    async def topic_loses_its_end(self) -> None:
        self.topic.lose_end(0, 1)
        await self.predecessor_copies_and_this_broker_is_elected()

    async def topic_is_made_anew(self) -> None:
        self.topic.made_anew()
        self.journal.published()
        await self.predecessor_copies_and_this_broker_is_elected()

    def acts_rightly(self) -> None:
        """S6: assert that a leader acts on all records written before its election, or not at
        all."""
        cache = self.journal.leaders_cache(PARTITION)
        assert cache is None or known(cache) == self.truth, "S6"


def known(cache: SegmentCache) -> dict[bytes, SegmentState]:
    return {one.segment_id: one.state for one in cache.segments()}


EVENTS: tuple[Callable[[Room], Awaitable[None]], ...] = (
    Room.predecessor_copies_and_this_broker_is_elected,
    Room.partition_is_taken_on_again,
    Room.another_partition_is_taken_on,
    Room.topic_loses_its_end,
    Room.topic_is_made_anew,
)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
async def test_leader_acts_by_all_that_was_written_before_whatever_happens_at_a_call(
    event: Callable[[Room], Awaitable[None]],
    exists: bool,
) -> None:
    """S6, KAFKA-16105: a leader acts on all records written before its election."""
    for number in range(CALLS):
        room = Room(exists=exists)
        room.stops.at(number, lambda room=room: event(room))  # type: ignore[misc]
        told: list[bool] = []
        room.journal.subscribe(lambda _, room=room, told=told: told.append(led(room)))  # type: ignore[misc]
        room.journal.take(PARTITION)
        async with asyncio.timeout(10):
            await until(lambda room=room: room.stops.happened)  # type: ignore[misc]
            await until(lambda room=room: led(room))  # type: ignore[misc]
            if event is not Room.topic_loses_its_end:  # the next read notices it
                room.acts_rightly()
            await until(lambda room=room: settled(room))  # type: ignore[misc]
        assert told, f"at call {number}: subscribers are notified"
        await room.journal.close()
        await room.supervisor.close()


def led(room: Room) -> bool:
    return room.journal.leaders_cache(PARTITION) is not None


def settled(room: Room) -> bool:
    cache = room.journal.leaders_cache(PARTITION)
    return cache is not None and known(cache) == room.truth
