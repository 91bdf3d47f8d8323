"""Bulk work over a shard, done in slices: the longest hold of the loop, by a counter of work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.coordinators.group.decision import Decision
from broker.coordinators.group.expiry import LOOKED_AT_PER_SLICE
from broker.coordinators.group.records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    PersistedMember,
    Record,
    TopicPartition,
    encode_record,
)
from broker.coordinators.runtime.loading import BYTES_PER_RECORD, WORK_PER_SLICE
from protocol.errors import ApiError, ErrorCode
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import GROUP, HOME, Driver
from testkit.memory.group_shard import A_ID, WALL_EPOCH_MS, ShardWorld, SomeTopics
from testkit.memory.turns import until

GROUPS, EACH = 100, 50


def offsets(topic_id: bytes = A_ID) -> Iterator[Record]:
    value = CommittedOffset(1, -1, "", WALL_EPOCH_MS, topic_id=topic_id)
    for number in range(GROUPS):
        for index in range(EACH):
            at = TopicPartition(f"topic-{number % 50}", index)
            yield encode_record(OffsetRecord(f"g{number}", at, value))


def topics(*gone: int) -> SomeTopics:
    """Return the topics of `offsets` except those in `gone`."""
    return SomeTopics({f"topic-{n}": (A_ID, EACH) for n in range(50) if n not in gone})


def member(number: int) -> PersistedMember:
    return PersistedMember(f"m{number}", None, "c", "/h", 30_000, 10_000, b"", b"")


def group_record(members: int) -> Record:
    everybody = tuple(member(number) for number in range(members))
    return encode_record(
        GroupRecord(GROUP, GroupMetadata("consumer", 1, "range", "m0", 0, everybody))
    )


def carry_out(world: ShardWorld, decision: Decision) -> None:
    """Run without the world's check, which replays the whole log."""
    state = world.shard.apply(decision.records, 0, world.now)
    world.shard.committed(state, decision, world.now)


class Turns:
    """A counter of the times that the work yields to the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def stop(self) -> int:
        self._task.cancel()
        return self.count


class TestDeletedTopics:
    def test_stale_offsets_are_checked_in_slices(self) -> None:
        world = ShardWorld(log=list(offsets()), topics=topics())
        decisions = list(world.shard.decide_stale())
        assert len(decisions) == GROUPS * EACH // LOOKED_AT_PER_SLICE
        assert not any(decision.records for decision in decisions)

    def test_the_offsets_of_the_topics_go(self) -> None:
        world = ShardWorld(log=list(offsets()), topics=topics(7, 8))
        sizes = []
        for decision in world.shard.decide_stale():
            sizes.append(len(decision.records))
            carry_out(world, decision)
        assert max(sizes) <= LOOKED_AT_PER_SLICE
        assert world.shard.appended.offset_count() == (GROUPS - 2 * GROUPS // 50) * EACH
        assert world.shard.core.counters.offset_deletions == 2 * GROUPS // 50 * EACH

    def test_topics_deleted_one_by_one_are_looked_for_together(self) -> None:
        world = ShardWorld(log=list(offsets()), topics=topics())
        world.delete_topics(*[f"topic-{n}" for n in range(3)])
        world.delete_topics(*[f"topic-{n}" for n in range(3, 5)])
        (together,) = world.shard.deletions.entries
        for decision in world.shard.decide_stale():
            carry_out(world, decision)
        assert world.shard.core.counters.offset_deletions == 5 * GROUPS // 50 * EACH
        world.shard.deletions.forget([together])
        assert world.shard.deletions.entries == []

    def test_offset_committed_between_slices_is_kept(self) -> None:
        """A client of an old version commits for a new topic of the same name, without its id."""
        world = ShardWorld()
        world.commit({("a", 0): 1, ("a", 1): 1, ("a", 2): 1}, version=4, retention_ms=10**9)
        world.shard.deletions.note({"a"}, world.shard.appended)
        walk = world.shard.decide_stale()
        world.commit({("a", 1): 1}, version=4, retention_ms=10**9)
        for decision in walk:
            world.run(decision)
        assert [world.fetch("a", index) for index in range(3)] == [-1, 1, -1]

    def test_offset_committed_during_walk_is_kept(self) -> None:
        value = CommittedOffset(1, -1, "", WALL_EPOCH_MS)
        at = [TopicPartition("a", index) for index in range(2 * LOOKED_AT_PER_SLICE)]
        world = ShardWorld(log=[encode_record(OffsetRecord(GROUP, each, value)) for each in at])
        world.shard.deletions.note({"a"}, world.shard.appended)
        walk = world.shard.decide_stale()
        carry_out(world, next(walk))
        kept = min(world.shard.appended.offsets_of(GROUP))
        carry_out(world, Decision(records=[OffsetRecord(GROUP, kept, value._replace(offset=2))]))
        for decision in walk:
            carry_out(world, decision)
        assert set(world.shard.appended.offsets_of(GROUP)) == {kept}

    async def test_removal_of_stale_offsets_yields_to_event_loop(self) -> None:
        driver = Driver()
        driver.log.records[HOME] = list(offsets())
        driver.topics.topics.update(topics().topics)
        await driver.start()
        await until_loaded(driver)
        turns = Turns()
        for number in range(50):
            driver.delete_topics(f"topic-{number}")
        await until(lambda: not driver.coordinator.stale_offsets.is_searching(HOME))
        assert turns.stop() >= GROUPS * EACH // LOOKED_AT_PER_SLICE
        (shard,), _ = driver.coordinator.shards()
        assert shard.core.committed.offset_count() == 0
        assert shard.deletions.entries == []
        await driver.stop()

    async def test_removal_of_stale_offsets_continues_after_reload(self) -> None:
        driver = Driver()
        driver.log.records[HOME] = list(offsets())
        driver.topics.topics.update(topics().topics)
        await driver.start()
        await until_loaded(driver)
        driver.delete_topics(*[f"topic-{number}" for number in range(50)])
        await settle()
        driver.log.hold = True
        driver.commit(1)
        driver.log.hold = False
        error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None)
        driver.log.pending[0].set_exception(error)
        await settle()
        assert driver.coordinator.shards() == ([], True)
        await until_loaded(driver)
        await until(lambda: not driver.coordinator.stale_offsets.is_searching(HOME))
        (shard,), _ = driver.coordinator.shards()
        assert shard.core.committed.offset_count() == 1
        await driver.stop()


class TestExpiry:
    def test_expired_offsets_are_checked_in_slices(self) -> None:
        world = ShardWorld(log=list(offsets()))
        decisions = list(world.shard.decide_expired(world.shard.expirable_groups(), world.now))
        assert len(decisions) >= GROUPS * EACH // LOOKED_AT_PER_SLICE
        assert max(len(decision.records) for decision in decisions) == 0
        world.now_ms += world.config.offsets_retention_ms
        for decision in world.shard.decide_expired(world.shard.expirable_groups(), world.now):
            carry_out(world, decision)
        assert world.shard.appended.offset_count() == 0

    def test_a_group_whose_offset_comes_back_between_two_slices_stays(self) -> None:
        value = CommittedOffset(1, -1, "", WALL_EPOCH_MS)
        at = [TopicPartition("a", index) for index in range(3 * LOOKED_AT_PER_SLICE)]
        records = [encode_record(OffsetRecord(GROUP, each, value)) for each in at]
        world = ShardWorld(log=[group_record(0), *records])
        world.now_ms += world.config.offsets_retention_ms
        decisions = world.shard.decide_expired(world.shard.expirable_groups(), world.now)
        first = next(decisions)
        carry_out(world, first)
        again = first.records[0]
        assert isinstance(again, OffsetRecord)
        carry_out(world, Decision(records=[OffsetRecord(GROUP, again.topic_partition, value)]))
        for decision in decisions:
            carry_out(world, decision)
        assert set(world.shard.appended.offsets_of(GROUP)) == {again.topic_partition}
        assert GROUP in world.shard.appended.groups


class TestLoading:
    async def test_others_get_their_turn_between_records(self) -> None:
        driver = Driver()
        driver.log.records[HOME] = list(offsets())
        turns = Turns()
        await driver.start()
        await until_loaded(driver)
        assert turns.stop() >= GROUPS * EACH // WORK_PER_SLICE
        await driver.stop()

    async def test_a_big_record_counts_as_several(self) -> None:
        driver = Driver()
        record = group_record(300)
        assert record[1] is not None
        driver.log.records[HOME] = [record] * 40
        turns = Turns()
        await driver.start()
        await until_loaded(driver)
        assert len(record[1]) > WORK_PER_SLICE * BYTES_PER_RECORD
        assert turns.stop() >= 40
        await driver.stop()

    @pytest.mark.parametrize("per_group", [0, 9])
    async def test_others_get_their_turn_while_groups_begin_to_live(self, per_group: int) -> None:
        driver = Driver()
        everybody = tuple(member(number) for number in range(per_group))
        metadata = GroupMetadata("consumer", 1, "range", "m0", 0, everybody)
        groups = 10 * WORK_PER_SLICE
        records = [encode_record(GroupRecord(f"g{n}", metadata)) for n in range(groups)]
        driver.log.records[HOME] = records
        turns = Turns()
        await driver.start()
        await until_loaded(driver)
        weight = 1 + len(records[0][1] or b"") // BYTES_PER_RECORD
        slices = groups * (weight + 1 + per_group) // WORK_PER_SLICE
        assert turns.stop() >= slices * 0.95
        (shard,), _ = driver.coordinator.shards()
        assert (len(shard.core.groups), len(shard.core.timers)) == (groups, groups * per_group)
        await driver.stop()


async def until_loaded(driver: Driver) -> None:
    await until(lambda: bool(driver.coordinator.shards()[0]))
