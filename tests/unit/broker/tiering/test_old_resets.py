"""Resets of a follower whose fetch offset its leader does not have, with an event at each request.

`ListOffsetsReset` requests bounds of the leader's log and then calls `reset_to`. A case is one
request, or its answer, with one event at it (as in `test_old_plans.py`). Nothing may be changed
under another leader epoch, or in a log that this broker has stopped to serve (P1, P4). Afterwards
the follower reaches the state of its leader (P26).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import ListOffsetsReset
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from storage.log.log import Log
from testkit.memory.replicas import TOPIC, Cluster
from testkit.memory.tier_stops import Stops

TRIES = 10


class Room:
    """Brokers 1 and 3 have the same log, of which they deleted the beginning; 2 follows 1."""

    def __init__(self) -> None:
        self.cluster = Cluster(3)
        self.cluster.create(1, 2, 3, isr=[1, 3])
        self.stops = Stops()
        self.resets = ListOffsetsReset(2)
        self.leader_id = 1
        for value in (b"a", b"b", b"c"):
            self.cluster[1].append(value)
        self.cluster.fetch(3, times=3)
        self.kept: tuple[int, int, bytes] | None = None
        """The follower's log at an event after which the reset must not change it."""

    @property
    def log(self) -> Log:
        log = self.cluster[2].log
        assert isinstance(log, Log)
        return log

    @property
    def leader(self) -> Log:
        log = self.cluster[self.leader_id].log
        assert isinstance(log, Log)
        return log

    def fall_behind(self) -> Reset:
        """Delete records that the follower has not copied yet."""
        for broker_id in (1, 3):
            self.cluster[broker_id].log.advance_log_start(2)
        return self.moved(ErrorCode.OFFSET_OUT_OF_RANGE)

    def be_ahead(self) -> Reset:
        """Give the follower records of an epoch that lost an unclean election."""
        self.cluster.fetch(2, times=3)
        lost = self.cluster[1].log.read(0, 1 << 20, max_offset=3)
        self.log.append_as_follower(moved_batches(bytes(lost), by=3, epoch=1))
        for _ in (1, 2):
            self.cluster.change(leader=1)
        return self.moved(ErrorCode.OFFSET_OUT_OF_RANGE)

    def moved(self, error: ErrorCode) -> Reset:
        partition = self.cluster[2].partition()
        return Reset(partition, error, partition.leader_epoch, -1)

    async def ask(self, message: Any) -> Any:
        await self.stops("ask")
        answer = self.cluster[1].body(message)
        await self.stops("has asked")
        return answer

    # Events ----------------------------------------------------------------------------------

    async def log_start_moves(self) -> None:
        for broker_id in (1, 3):
            log = self.cluster[broker_id].log
            log.advance_log_start(min(log.log_start_offset + 1, log.high_watermark))

    async def all_is_deleted(self) -> None:
        for broker_id in (1, 3):
            log = self.cluster[broker_id].log
            log.advance_log_start(log.high_watermark)

    async def log_grows(self) -> None:
        self.cluster[1].append(b"later")
        self.cluster.fetch(3, times=2)

    async def leader_changes(self) -> None:
        """Elect broker 3, which continues in another epoch."""
        self.keep()
        self.leader_id = 3
        self.cluster.change(leader=3)
        self.cluster[3].append(b"of another epoch")

    async def leader_changes_back(self) -> None:
        self.cluster.change(leader=3)
        self.keep()
        self.cluster.change(leader=1)

    async def follower_is_elected(self) -> None:
        """Elect the follower uncleanly, with its own log."""
        self.keep()
        self.leader_id = 2
        self.cluster.change(leader=2, isr=[2])

    async def replica_moves_away(self) -> None:
        self.keep()
        self.cluster.change(replicas=[1, 3], isr=[1, 3])
        self.leader_id = 0

    async def topic_is_deleted(self) -> None:
        """Delete the topic; the leader has not read the record yet. The leader epoch stays."""
        self.keep()
        self.cluster.records.append(RemoveTopicRecord(topic_id=TOPIC))
        self.cluster.catch_up(2)
        self.leader_id = 0

    async def log_fails(self) -> None:
        self.log.guard.fail(OSError("the disk"))
        self.leader_id = 0

    def keep(self) -> None:
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        self.kept = start, end, bytes(log.read(start, 1 << 20, max_offset=end))

    # Laws ------------------------------------------------------------------------------------

    def check_kept(self, log: Log) -> None:
        """Assert that the reset changed nothing after an event that made it outdated."""
        if self.kept is None:
            return
        start, end, data = self.kept
        assert (log.log_start_offset, log.log_end_offset) == (start, end), "P1: reset by old bounds"
        if not log.closed:
            assert bytes(log.read(start, 1 << 20, max_offset=end)) == data, "P4"

    async def follow(self) -> None:
        leader, follower = self.cluster[self.leader_id], self.cluster[2]
        for _ in range(TRIES):
            if self.is_in_sync:
                return
            follower.fetchers[self.leader_id].resume(follower.partition())
            for effect in self.cluster.fetch(2, self.leader_id):
                if isinstance(effect, Reset):
                    await self.resets.reset(Answers(leader), effect)  # type: ignore[arg-type]

    @property
    def is_in_sync(self) -> bool:
        mine, other = self.log, self.leader
        start, end = max(mine.log_start_offset, other.log_start_offset), other.log_end_offset
        return (
            mine.log_end_offset == end
            and mine.log_start_offset <= other.log_start_offset
            and bytes(mine.read(start, 1 << 20, max_offset=end))
            == bytes(other.read(start, 1 << 20, max_offset=end))
        )


class Answers:
    """A link to a broker's handlers, without stopping points."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker

    async def ask(self, message: Any) -> Any:
        return self._broker.body(message)


def moved_batches(data: bytes, *, by: int, epoch: int) -> bytes:
    """Return batches of another epoch with base offsets raised by `by`. The checksums do not cover
    either."""
    moved, at = bytearray(data), 0
    while at < len(moved):
        base = int.from_bytes(moved[at : at + 8], "big") + by
        moved[at : at + 8] = base.to_bytes(8, "big")
        moved[at + 12 : at + 16] = epoch.to_bytes(4, "big")
        at += 12 + int.from_bytes(moved[at + 8 : at + 12], "big")
    return bytes(moved)


EVENTS: tuple[Callable[[Room], Awaitable[None]], ...] = (
    Room.log_start_moves,
    Room.all_is_deleted,
    Room.log_grows,
    Room.leader_changes,
    Room.leader_changes_back,
    Room.follower_is_elected,
    Room.replica_moves_away,
    Room.topic_is_deleted,
    Room.log_fails,
)
STATES: tuple[Callable[[Room], Reset], ...] = (Room.fall_behind, Room.be_ahead)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_reset_changes_only_what_its_leader_epoch_allows_whatever_happens_during_it(
    state: Callable[[Room], Reset], event: Callable[[Room], Awaitable[None]]
) -> None:
    """P1, P4, P26: bounds of the leader's log may be old when they arrive."""
    for number in count():
        room = Room()
        wanted, log = state(room), room.log
        room.stops.at(number, lambda room=room: event(room))  # type: ignore[misc]
        try:
            try:
                await room.resets.reset(room, wanted)  # type: ignore[arg-type]
            except ApiError as error:
                assert error.code.retriable
            room.stops.close()
            room.check_kept(log)
            if room.leader_id in (1, 3):
                await room.follow()
                assert room.is_in_sync, "P26"
        except AssertionError as error:
            raise AssertionError(f"at call {number}, {room.stops.taken}: {error}") from error
        if not room.stops.happened:
            assert number >= 4
            return
