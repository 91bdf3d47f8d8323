"""Outdated plans: each call of a leader's driver x each event.

A pass decides, calls the store or the metadata topic, and continues with the state it saw before.
Here one event happens at one call; afterwards the leader finishes the work, and S1 to S6 hold. No
object of a finished copy may be deleted at any moment, and none of an unfinished one read (S3).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeVar
from unittest import mock

import pytest

from broker.tiering.copying import CopyRefused
from broker.tiering.record_writer import TierUnavailable
from runtime.clock import Clock
from storage.files import MemoryFiles
from storage.objects import ObjectError
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import SegmentCache
from storage.tiered.layout import parse_key
from storage.tiered.records import decode_record
from storage.tiered.states import SegmentState
from storage.tiered.survey import verify
from storage.tiered.values import RemoteSegment, SegmentUpdate
from storage.tiered.verify import Fault
from testkit.memory.logs import T0, append, batch, fill, make_log
from testkit.memory.tier_brokers import TierBroker, TierWorld
from testkit.memory.tier_stops import Stops, stop_at
from testkit.records.tier import PARTITION, segment

R = TypeVar("R")
FORESEEN = (TierUnavailable, CopyRefused, ObjectError, CorruptSegment, OSError)
"""A pass that raises one of these is repeated."""


class Room:
    """A leader with seven closed segments of epochs 0 and 1, and a follower with all of them."""

    def __init__(self, world: TierWorld) -> None:
        self.world = world
        self.leads: TierBroker
        self.first: TierBroker
        self.other: TierBroker
        self.lost_records = False

    async def fill(self, *, expires: bool) -> None:
        config = {"local_retention_bytes": 0} if expires else {}
        self.first = first = await self.world.leader_with(6, **config)
        first.lead(1)
        fill(first.log, 9, epoch=1, size=50)
        first.commit()
        self.other = await self.world.follower_of(first)
        self.other.commit()
        self.leads = first
        if expires:
            await first.copy_all()
            first.log.retention(T0)
            await first.journal.write(segment(900, 0, 3, {0: 0}, broker_id=9))
            one = next(first.known.finished()).size_bytes
            size = first.log.size_bytes + 4 * one
            first.log.configure(replace(first.log.config, retention_bytes=size))
        first.steps.taken.clear()
        stop_at(first.log, "flush", first.stops)
        stop_at(first.log.files, "run", first.stops)
        stop_at(first.limit, "wait", first.stops)

    # Events ----------------------------------------------------------------------------------

    async def nothing(self) -> None:
        """Change nothing: this run lists the calls."""

    async def another_deletion_finishes(self) -> None:
        """Finish a deletion of an earlier leader; it covers segments below that leader's log
        start."""
        copies = sorted(self.first.known.finished(), key=lambda one: one.start_offset)
        if not copies:
            return
        self.other.log.advance_log_start(copies[0].end_offset + 1)
        for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
            await self.other.journal.write(self._update(copies[0], state))
            await self.other.store.delete(copies[0])

    async def unfinished_copy_is_finished(self) -> None:
        """Deliver the COPY_FINISHED that was under way."""
        for one in list(self.first.known.unfinished()):
            if one.broker_id == 9 and one.state is SegmentState.COPY_STARTED:
                with contextlib.suppress(TierUnavailable):
                    await self.other.journal.write(self._update(one, SegmentState.COPY_FINISHED))

    async def log_start_moves(self) -> None:
        log = self.leads.log
        log.advance_log_start(log.segments[min(2, len(log.segments) - 1)].base_offset)
        self.other.log.advance_log_start(log.log_start_offset)

    async def segment_leaves_the_disk(self) -> None:
        log = self.first.log
        self.first.look()
        log.configure(replace(log.config, local_retention_bytes=0))
        log.retention(T0)

    async def leader_changes(self) -> None:
        await self._elect(noticed=True)

    async def leader_changes_back(self) -> None:
        """Give the same broker another leadership."""
        self.first.lead(2)
        self.leads = self.first

    async def later_leader_copies(self) -> None:
        """Let another leader copy while this broker is cut off and does not know of it."""
        await self._elect(noticed=False)
        fill(self.other.log, 4, epoch=2, size=50)
        self.other.commit()
        await self.other.sees_all()
        await self.other.copy_all()
        await self.first.sees_all()

    async def log_is_cut(self) -> None:
        """Elect a leader uncleanly that has fewer records."""
        end = self.other.log.segments[-2].base_offset
        self.other.log.truncate_to(end)
        await self._elect(noticed=True)
        append(self.other.log, batch(size=50), epoch=2)
        self.other.commit()
        self.first.log.truncate_to(end)

    async def log_is_replaced(self) -> None:
        """Move the replica away, and back to an empty folder."""
        await self._elect(noticed=True)
        self.first.log.close()
        self.first.replica.log = self.first.log = make_log(MemoryFiles(), clock=self.world.clock)

    async def partition_is_taken_on_again(self) -> None:
        self.first.journal.give_up(PARTITION)
        self.first.journal.take(PARTITION)

    async def metadata_lose_their_end(self) -> None:
        """Drop the last metadata records; the brokers' disks keep the records before them."""
        self.lost_records = True
        records = self.world.topic.logs[0]
        self.world.topic.lose_end(0, max(0, len(records) - 2))

    async def log_grows(self) -> None:
        fill(self.leads.log, 4, epoch=self.leads.replica.leader_epoch, size=50)
        self.leads.commit()

    # Laws ------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let the leader finish all remaining work."""
        leads = self.leads
        leads.look()
        for _ in range(3):
            await leads.ready()
            await leads.sees_all()
            with contextlib.suppress(TierUnavailable):
                await leads.copy_all()
                await leads.expire()

    async def check(self) -> None:
        leads = self.leads
        if not self.lost_records:
            await self.world.check(leads)
        cache, log, lineage = leads.known, leads.log, leads.led.lineage
        local = max(log.log_start_offset, log.local_log_start_offset)
        if not self.lost_records:
            assert cache.covers(lineage, log.log_start_offset, local - 1), "S1"
        assert cache.covers(lineage, local, log.segments.active.base_offset - 1), (
            "S9: all is copied"
        )
        whole = [one for one in cache.finished() if lineage.shared(one)]
        mine = [(one.start_offset, one.end_offset, one.epochs) for one in whole]
        assert len(set(mine)) == len(mine), "S6: one finished copy for each lineage"
        findings = await verify(self.world.bucket, cache.segments(), contents=True)
        assert {one.fault for one in findings} <= {Fault.DANGLING, Fault.UNDER_WAY}, "S3"

    async def _elect(self, *, noticed: bool) -> None:
        """Elect the other broker with its own log."""
        self.leads = self.other
        if noticed:
            self.first.replica.is_leader, self.first.replica.leader_epoch = False, 2
        await self.other.sees_all()
        self.other.log.advance_log_start(self.first.log.log_start_offset)
        self.other.lead(2)

    def _update(self, one: RemoteSegment, state: SegmentState) -> SegmentUpdate:
        return SegmentUpdate(
            partition=PARTITION,
            segment_id=one.segment_id,
            broker_id=2,
            event_timestamp_ms=0,
            state=state,
        )


EVENTS: tuple[Callable[[Room], Awaitable[None]], ...] = (
    Room.another_deletion_finishes,
    Room.unfinished_copy_is_finished,
    Room.log_start_moves,
    Room.segment_leaves_the_disk,
    Room.leader_changes,
    Room.leader_changes_back,
    Room.later_leader_copies,
    Room.log_is_cut,
    Room.log_is_replaced,
    Room.partition_is_taken_on_again,
    Room.metadata_lose_their_end,
    Room.log_grows,
)


async def copying(room: Room) -> None:
    await room.first.copier.copy_once(room.first.led)


async def expiring(room: Room) -> None:
    await room.first.expirer.expire_once(room.first.led)


@contextlib.contextmanager
def guarded(room: Room) -> Iterator[None]:
    """S3: assert that each deletion in the bucket belongs to a copy that does not count at that
    moment."""
    world, delete = room.world, room.world.bucket.delete

    async def looked_at(keys: list[str]) -> None:
        cache = SegmentCache(PARTITION)
        for at, value in enumerate(world.topic.logs[0]):
            cache.apply(at, decode_record(value))
        named = {segment_id_of(key) for key in keys if key in world.bucket.keys}
        finished = {one.segment_id.hex() for one in cache.finished()}
        if not room.lost_records:
            assert not named & finished, "S3: an object of a finished copy is deleted"
        await delete(keys)

    world.bucket.delete = looked_at  # type: ignore[assignment]
    try:
        yield
    finally:
        world.bucket.delete = delete  # type: ignore[method-assign]


def segment_id_of(key: str) -> str:
    place = parse_key(key)
    assert place is not None
    return place.segment_id.hex()


Operation = Callable[[Room], Awaitable[None]]
Event = Callable[[Room], Awaitable[None]]


async def stepped(stops: Stops, steps: Generator[object, None, R], _clock: Clock) -> R:
    """Run the steps of a plan, with a stopping point after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        await stops("step of the plan")


async def play(world: TierWorld, operation: Operation, event: Event, number: int) -> Room:
    room = Room(world)
    await room.fill(expires=operation is expiring)
    room.first.stops.at(number, lambda: event(room))
    in_steps = partial(stepped, room.first.stops)
    with guarded(room), mock.patch("broker.tiering.copying.result_in_slices", in_steps):
        async with asyncio.timeout(20):
            with contextlib.suppress(*FORESEEN):
                await operation(room)
            room.first.stops.close()
            await room.settle()
    return room


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("operation", [copying, expiring], ids=lambda one: one.__name__)
async def test_driver_holds_its_promises_whatever_happens_at_one_of_its_calls(
    operation: Operation, event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-S6, KAFKA-15241, 15352, 17062: no event at any call of the driver breaks a promise."""
    monkeypatch.setattr("broker.tiering.copying.FINISH_PAUSE_MS", 0.0)
    monkeypatch.setattr("storage.tiered.copying.STEP_SEGMENTS", 1)
    for number in count():
        world = TierWorld()
        try:
            room = await play(world, operation, event, number)
            if not room.first.stops.happened:
                assert number > 8, "there are calls to stop at"
                break
            await room.check()
        except AssertionError as error:
            raise AssertionError(
                f"at call {number}, {room.first.stops.taken[: number + 1][-1]}: {error}"
            ) from error
        finally:
            await world.close()
