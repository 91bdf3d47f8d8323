"""Beginnings behind the tier (KIP-405, KIP-1023), with an event at each call.

A case is one request to the leader, call of the store or save, with one event at it (as in
`test_old_plans.py`). At its end the follower is in sync, knows the epochs of all data that only the
tier has, and exposes no deleted data (S1, S5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import ListOffsetsReset
from protocol.errors import ApiError, ErrorCode
from storage.log.log import Log
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage
from storage.tiered.values import RemotePartition
from testkit.memory.tier import drop_local, partition_of, tiered
from testkit.memory.tier_stops import StoppedObjects, Stops
from tests.unit.broker.tiering.followers import World

TRIES = 8


class Room(World):
    """A leader whose disk begins in epoch 2, with all earlier data in the tier alone."""

    def __init__(self, *, skips_tiered: bool) -> None:
        self.stops = Stops()
        super().__init__()
        self.tier.store.objects = StoppedObjects(self.tier.store.objects, self.stops)
        self.resets = ListOffsetsReset(2, self.beginnings, skips_tiered=lambda _: skips_tiered)

    @property
    def leader(self) -> Log:
        return self.cluster[1].log

    @property
    def follower(self) -> Log:
        return self.cluster[2].log

    @property
    def cache(self) -> SegmentCache:
        return self.tier.caches[partition_of(self.leader).identity]

    async def begun(self) -> Room:
        await self.fill()
        self.cluster[1].append(b"more")
        self.truth = self.leader.epochs.entries
        return self

    # Stopping points -------------------------------------------------------------------------

    async def ask(self, message: Any) -> Any:
        await self.stops("ask")
        answer = await self.link.ask(message)
        await self.stops("has asked")
        return answer

    async def ready(self, partition: RemotePartition) -> SegmentCache:
        await self.stops("ready")
        return await super().ready(partition)

    async def save(self) -> None:
        await self.stops("save")
        await super().save()
        await self.stops("has saved")

    # Events ----------------------------------------------------------------------------------

    async def first_copy_expires(self) -> None:
        first = min(self.cache.finished(), key=lambda one: one.start_offset)
        self.leader.advance_log_start(first.end_offset + 1)
        await self.tier.delete(first)

    async def all_copies_expire(self) -> None:
        """Expire all copies; the last of them has the offset before the log's beginning."""
        self.leader.advance_log_start(self.leader.local_log_start_offset)
        for one in list(self.cache.finished()):
            await self.tier.delete(one)

    async def leader_has_another_epoch(self) -> None:
        self.cluster.change(leader=1)
        self.cluster[1].append(b"later")
        self.truth = self.leader.epochs.entries

    async def more_leaves_the_leaders_disk(self) -> None:
        self.cluster[1].append(b"copied")
        await tiered(self.tier, self.leader)
        self.cluster[1].append(b"on the disk")

    async def disk_lets_go(self) -> None:
        self.leader.roll()
        await self.tier.copy(self.leader)
        drop_local(self.leader)

    async def partition_is_given_back_for_now(self) -> None:
        known, self.tier.caches = self.tier.caches, {}
        self.later = lambda: self.tier.caches.update(known)

    later: Callable[[], None] = staticmethod(lambda: None)

    # Laws ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert epochs, producers and log start of a follower whose log has begun."""
        log = self.follower
        start, local = log.log_start_offset, log.local_log_start_offset
        if start == local or not log.log_end_offset:
            return
        truth = Lineage(self.truth, self.leader.log_end_offset)
        for offset in range(max(start, self.leader.log_start_offset), local):
            assert log.epochs.epoch_at(offset) == truth.epoch_at(offset), f"S5: epoch of {offset}"
        assert not log.producer_history.lacks_beginning, "T2"
        gone = range(max(start, self.leader.log_start_offset), local)
        if gone and self.tier.caches:
            lineage = Lineage(log.epochs.entries, local)
            assert self.cache.covers(lineage, gone[0], gone[-1]), f"S1: nobody has some of {gone}"

    @property
    def is_in_sync(self) -> bool:
        mine, other = self.follower, self.leader
        ends = mine.log_end_offset, mine.log_start_offset
        return ends == (other.log_end_offset, other.log_start_offset)

    async def follow(self) -> None:
        """Let the follower catch up with its leader."""
        for _ in range(TRIES):
            if self.is_in_sync:
                return  # its next fetch would wait
            self.cluster[2].fetchers[1].resume(self.cluster[2].partition())
            effects = self.cluster.fetch(2)
            for effect in effects:
                if isinstance(effect, Reset):
                    try:
                        await self.resets.reset(self, effect)  # type: ignore[arg-type]
                    except ApiError as error:
                        assert error.code.retriable or error.code is ErrorCode.KAFKA_STORAGE_ERROR
                    self.check()


EVENTS: tuple[Callable[[Room], Awaitable[None]], ...] = (
    Room.first_copy_expires,
    Room.all_copies_expire,
    Room.leader_has_another_epoch,
    Room.more_leaves_the_leaders_disk,
    Room.disk_lets_go,
    Room.partition_is_given_back_for_now,
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("skips_tiered", [False, True])
async def test_follower_begins_rightly_whatever_happens_at_one_of_its_calls(
    event: Callable[[Room], Awaitable[None]], skips_tiered: bool
) -> None:
    """S1, S5, KIP-1023: state read before the log begins may be old by then."""
    for number in count():
        room = await Room(skips_tiered=skips_tiered).begun()
        room.stops.at(number, lambda room=room: event(room))  # type: ignore[misc]
        where = f"at call {number}"
        try:
            try:
                await room.resets.reset(room, room.moved())  # type: ignore[arg-type]
            except ApiError as error:
                assert error.code.retriable or error.code is ErrorCode.KAFKA_STORAGE_ERROR
            room.stops.close()
            if event is Room.all_copies_expire and room.stops.happened:
                begun = room.follower.log_start_offset < room.follower.local_log_start_offset
                assert not begun or "save" in room.stops.taken[number], "S1: behind what is gone"
            room.check()
            room.later()
            await room.follow()
            leader, follower = room.leader, room.follower
            assert room.is_in_sync, "P26, S4"
            start = max(leader.local_log_start_offset, follower.local_log_start_offset)
            ends = leader.log_end_offset
            if start < ends:
                mine = bytes(follower.read(start, 1 << 20, max_offset=ends))
                assert mine == bytes(leader.read(start, 1 << 20, max_offset=ends)), "P4"
            room.check()
        except AssertionError as error:
            raise AssertionError(f"{where}, {room.stops.taken[: number + 1]}: {error}") from error
        if not room.stops.happened:
            assert number > 10
            return
