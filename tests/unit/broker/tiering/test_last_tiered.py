"""Beginnings of empty followers behind all tiered data (KIP-1023)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LeaderLog,
    ListOffsetsReset,
    may_skip_tiered,
)
from broker.replication.partition.role import ReplicaRole
from metalog.image.features import METADATA_VERSIONS
from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsResponse
from storage.log.bootstrap import marker_path
from storage.log.config import LogConfig
from storage.objects import Weather
from testkit.memory.broker import batch
from testkit.memory.tier import drop_local, partition_of
from tests.unit.broker.tiering.followers import World

MOVED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
EPOCH_END = "OffsetForLeaderEpochRequest"


class Follower(World):
    """A world whose broker 2 skips tiered data."""

    def __init__(self) -> None:
        super().__init__()
        self.skips = True
        self.answers: dict[int, int] = {}
        """Offsets that the leader returns in place of its own, by lookup."""

    @property
    def leader(self) -> Any:
        return self.cluster[1].log

    @property
    def own(self) -> Any:
        return self.cluster[2].log

    async def seed(self) -> None:
        """Append the KIP's example: 0-2 in the tier alone, 3-5 there and on the disk, 6 and 7 on
        the disk."""
        await self.segment(b"0", b"1", b"2")
        drop_local(self.leader)
        self.epoch()
        self.append(b"3", b"4")
        self.epoch()
        await self.segment(b"5")
        self.append(b"6")
        self.epoch()
        self.append(b"7")
        self.objects.backing = self.tier.bucket

    def append(self, *values: bytes) -> None:
        for value in values:
            self.cluster[1].append(value)

    def epoch(self) -> None:
        self.cluster.change(leader=1)

    async def segment(self, *values: bytes) -> None:
        """Append these values and copy the segment that has them."""
        self.append(*values)
        self.leader.roll()
        await self.tier.copy(self.leader)

    async def ask(self, message: Any) -> Any:
        answer = await self.link.ask(message)
        if isinstance(answer, ListOffsetsResponse):
            asked = self.link.asked[-1]
            if isinstance(asked, int) and asked in self.answers:
                answer.topics[0].partitions[0].offset = self.answers[asked]
        return answer

    async def turned_away(self, error: ErrorCode = MOVED, told_log_start: bool = True) -> None:
        """Run the follower's step after the leader has refused a fetch at 0."""
        (effect,) = self.cluster.fetch(2)
        assert isinstance(effect, Reset)
        assert (effect.error, effect.leader_log_start) == (error, self.leader.log_start_offset)
        if not told_log_start:
            effect = effect._replace(leader_log_start=-1)
        resets = ListOffsetsReset(2, self.beginnings, skips_tiered=lambda _: self.skips)
        await resets.reset(self, effect)  # type: ignore[arg-type]

    def follow_again(self) -> None:
        """Let the backoff after a failed reset pass."""
        self.cluster[2].fetchers[1].resume(self.cluster[2].partition())

    def follow(self) -> None:
        self.follow_again()
        self.cluster.fetch(2, times=4)


async def test_the_two_steps_of_the_proposal() -> None:
    world = Follower()
    await world.seed()
    assert world.leader.local_log_start_offset == 3
    await world.turned_away()
    assert world.link.asked == [LATEST, EARLIEST_PENDING_UPLOAD, EPOCH_END]
    own = world.own
    assert (own.log_start_offset, own.local_log_start_offset, own.log_end_offset) == (0, 6, 6)
    assert own.epochs.entries == [(0, 0), (1, 3), (2, 5)]
    world.follow()
    assert own.epochs.entries == world.leader.epochs.entries == [(0, 0), (1, 3), (2, 5), (3, 7)]
    assert own.log_end_offset == 8
    assert own.read(6, 1 << 20, max_offset=8) == world.leader.read(6, 1 << 20, max_offset=8)


async def test_log_start_is_requested_if_the_refusal_lacks_it() -> None:
    world = Follower()
    await world.seed()
    await world.turned_away(told_log_start=False)
    assert world.link.asked == [LATEST, EARLIEST, EARLIEST_PENDING_UPLOAD, EPOCH_END]
    assert (world.own.log_start_offset, world.own.log_end_offset) == (0, 6)


async def test_switched_off_it_begins_where_the_leaders_disk_does() -> None:
    world = Follower()
    world.skips = False
    await world.seed()
    await world.turned_away()
    assert world.own.log_end_offset == 3
    assert EARLIEST_PENDING_UPLOAD not in world.link.asked


async def test_case_1_what_the_leader_has_on_its_disk_is_copied_from_there() -> None:
    world = Follower()
    await world.segment(b"0", b"1")
    world.append(b"2")
    request = world.cluster.request(2, 1)
    response = await world.cluster[1].call(request)  # closed segments are read off the loop
    assert world.cluster.take(2, 1, response) == []
    assert world.own.log_end_offset > 0
    assert (world.own.log_start_offset, world.own.local_log_start_offset) == (0, 0)


async def test_empty_leader_gets_no_query_about_the_tier() -> None:
    """The leader was elected since the refusal and has no records: its follower stays at the
    start."""
    world = Follower()
    await world.seed()
    world.answers = {LATEST: 0}
    await world.turned_away()
    assert world.link.asked == [LATEST]
    assert (world.own.log_start_offset, world.own.log_end_offset) == (0, 0)


async def test_a_replica_that_has_something_copies_all_that_the_leader_has() -> None:
    """The rule is for empty followers: a log end does not reveal the missing records."""
    world = Follower()
    world.append(b"0")
    world.cluster.fetch(2)
    assert world.own.log_end_offset == 1
    await world.segment(b"1", b"2")
    drop_local(world.leader)
    await world.segment(b"3")
    world.append(b"4")
    world.objects.backing = world.tier.bucket
    await world.turned_away()
    assert world.own.log_end_offset == 3


async def test_case_2_1_the_tier_has_all_below_its_end() -> None:
    world = Follower()
    await world.seed()
    world.leader.advance_log_start(4)
    await world.turned_away(OUT_OF_RANGE)
    own = world.own
    assert (own.log_start_offset, own.local_log_start_offset, own.log_end_offset) == (4, 6, 6)
    assert own.epochs.entries == [(1, 4), (2, 5)]


async def test_nothing_in_the_tier_below_the_start_is_looked_for() -> None:
    """DeleteRecords has advanced the log start, and nothing was copied yet.

    Kafka 4.3.1 looks for the copy before the log start, without end.
    """
    world = Follower()
    world.append(b"0", b"1", b"2")
    world.leader.advance_log_start(2)
    await world.turned_away(OUT_OF_RANGE)
    assert world.link.asked == [LATEST, EARLIEST_PENDING_UPLOAD]
    assert world.beginnings.counters == {}
    assert (world.own.log_start_offset, world.own.log_end_offset) == (2, 2)
    world.follow()
    assert world.own.log_end_offset == 3


async def test_a_leader_that_has_copied_nothing_and_does_not_know() -> None:
    """The leader answers -1; log start and local log start are equal."""
    world = Follower()
    world.append(b"0", b"1", b"2")
    world.leader.advance_log_start(2)
    world.answers[EARLIEST_PENDING_UPLOAD] = -1
    await world.turned_away(OUT_OF_RANGE)
    assert world.link.asked == [LATEST, EARLIEST_PENDING_UPLOAD, EARLIEST_LOCAL]
    assert (world.own.log_start_offset, world.own.log_end_offset) == (2, 2)


async def test_leader_without_metadata_yet_is_queried_again() -> None:
    """A leader elected a moment ago has not read its finished copies, and its log starts before its
    disk."""
    world = Follower()
    await world.seed()
    known = dict(world.tier.caches)
    world.tier.caches.clear()
    with pytest.raises(ApiError) as refused:
        await world.turned_away()
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert world.link.asked == [LATEST, EARLIEST_PENDING_UPLOAD, EARLIEST_LOCAL]
    assert world.own.log_end_offset == 0
    world.tier.caches.update(known)
    world.follow_again()
    await world.turned_away()
    assert world.own.log_end_offset == 6


async def test_nor_is_the_log_touched_where_the_leader_has_deleted_from_the_tier() -> None:
    world = Follower()
    await world.seed()
    world.leader.advance_log_start(1)
    world.tier.caches.clear()
    with pytest.raises(ApiError) as refused:
        await world.turned_away(OUT_OF_RANGE)
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert (world.own.log_start_offset, world.own.log_end_offset) == (0, 0)


@pytest.mark.parametrize("pending", [0, 1, 2])
async def test_copies_below_the_log_start_do_not_count(pending: int) -> None:
    """Tiering was on, off for long, and is on again: everything that the leader still has is
    copied."""
    world = Follower()
    world.append(b"0", b"1", b"2", b"3")
    world.leader.advance_log_start(2)
    world.answers[EARLIEST_PENDING_UPLOAD] = pending
    await world.turned_away(OUT_OF_RANGE)
    assert world.beginnings.counters == {}
    assert (world.own.log_start_offset, world.own.log_end_offset) == (2, 2)


async def test_leader_with_contradictory_answers_is_queried_again() -> None:
    """Offset 0 is in the tier alone, and yet the leader names no tiered offset at or after the log
    start."""
    world = Follower()
    await world.seed()
    world.answers[EARLIEST_PENDING_UPLOAD] = 0
    with pytest.raises(ApiError, match="log start 0"):
        await world.turned_away()
    assert world.own.log_end_offset == 0


async def test_the_epoch_before_may_be_older_than_that_of_the_first_offset() -> None:
    world = Follower()
    await world.segment(b"0", b"1")
    drop_local(world.leader)
    await world.segment(b"2")
    world.epoch()
    world.epoch()
    world.append(b"of epoch 2")
    world.objects.backing = world.tier.bucket
    await world.turned_away()
    assert world.own.log_end_offset == 3
    assert world.own.epochs.entries == [(0, 0)]
    assert world.own.latest_epoch == 0
    world.follow()
    assert world.own.epochs.entries == [(0, 0), (2, 3)]


async def test_producers_go_on_where_the_leader_knows_them() -> None:
    """T2: a follower that becomes leader must know sequences of records that it never had."""
    world = Follower()
    world.cluster[1].produce(batch(b"p", producer=Producer(7, 0, 0)))
    await world.segment(b"1")
    drop_local(world.leader)
    world.cluster[1].produce(batch(b"p", producer=Producer(7, 0, 1)))
    await world.segment()
    world.objects.backing = world.tier.bucket
    await world.turned_away()
    assert world.own.producers.encode_snapshot() == world.leader.producers.encode_snapshot()
    world.cluster.change(leader=2, isr=[2])
    answer = world.cluster[2].produce(batch(b"p", producer=Producer(7, 0, 2)))
    assert answer.error_code == ErrorCode.NONE
    late = world.cluster[2].produce(batch(b"p", producer=Producer(7, 0, 4)))
    world.cluster[2].context.held_batches.close()  # it waits for number 3 a moment
    (result,) = (await late).responses[0].partition_responses
    assert result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_t2_producers_of_a_copy_that_ends_behind_the_begin_are_those_at_the_begin() -> None:
    """T2: another leader's segments may end elsewhere; records of a lost lineage have no effect."""
    world = Follower()
    world.cluster[1].produce(batch(b"0", producer=Producer(6, 0, 0)))
    world.append(b"1", b"2")
    world.cluster[1].produce(batch(b"3", producer=Producer(7, 0, 0)))
    await world.segment(b"4")
    drop_local(world.leader)
    world.objects.backing = world.tier.bucket
    (wanted,) = world.cluster.fetch(2)
    assert isinstance(wanted, Reset)
    await world.beginnings.begin(wanted, LeaderLog(0, 3, 0))
    assert world.own.log_end_offset == 3
    assert [one.producer_id for one in world.own.producers] == [6]


async def test_second_attempt_repeats_every_query() -> None:
    """In between the leader has copied more, and the copy chosen first has expired."""
    world = Follower()
    await world.seed()
    world.objects.weather = Weather(down=True)
    with pytest.raises(ApiError, match="cannot begin"):
        await world.turned_away()
    world.objects.weather = Weather()
    await world.segment(b"8")
    cache = world.tier.cache_of(partition_of(world.leader))
    assert cache is not None
    for one in list(cache.finished()):
        if one.end_offset <= 5:
            await world.tier.delete(one)
    world.leader.advance_log_start(6)
    world.follow_again()
    await world.turned_away(OUT_OF_RANGE)
    own = world.own
    assert (own.log_start_offset, own.log_end_offset) == (6, 9)
    assert own.epochs.entries == [(2, 6), (3, 7)]


async def test_a_copy_of_a_lineage_that_lost_is_of_no_use() -> None:
    """Copies of another leader reach beyond this one's log: their epochs show that."""
    world = Follower()
    await world.seed()
    world.answers[EARLIEST_PENDING_UPLOAD] = 8  # as if another leader had copied them
    with pytest.raises(ApiError, match="no copy with offset 7"):
        await world.turned_away()
    assert world.own.log_end_offset == 0


LEVELS = {version.name: version.level for version in METADATA_VERSIONS}


@pytest.mark.parametrize(
    ("level", "config", "may"),
    [
        (LEVELS["4.2-IV1"], LogConfig(remote_storage_enable=True), True),
        (LEVELS["4.2-IV0"], LogConfig(remote_storage_enable=True), False),
        (None, LogConfig(remote_storage_enable=True), False),
        (LEVELS["4.3-IV0"], LogConfig(), False),
        (
            LEVELS["4.3-IV0"],
            LogConfig(remote_storage_enable=True, cleanup_policy="compact,delete"),
            False,
        ),
    ],
)
def test_for_which_replicas_it_is(level: int | None, config: LogConfig, may: bool) -> None:
    assert may_skip_tiered(level, config) is may


# --- while a log begins ---------------------------------------------------------------------------


class Halfway(Follower):
    """A world that writes the log starts once `go` is set, which completes the log's beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def save(self) -> None:
        self.reached.set()
        await self.go.wait()
        await super().save()

    async def meanwhile(self, act: Callable[[], None]) -> None:
        turned_away = asyncio.ensure_future(self.turned_away())
        await self.reached.wait()
        try:
            act()
        finally:
            self.go.set()
            await turned_away


async def halfway() -> Halfway:
    world = Halfway()
    await world.seed()
    return world


async def test_log_that_is_about_to_begin_has_no_readers() -> None:
    world = await halfway()
    partition = world.cluster[2].partition()

    def refused() -> None:
        with pytest.raises(ApiError) as error:
            partition.require_readable()
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    await world.meanwhile(refused)
    assert partition.require_readable() is world.own


async def test_s5_who_is_elected_while_its_log_begins_commits_nothing_before_it_has() -> None:
    """S5: a crash would begin the log again, without records that were acknowledged."""
    world = await halfway()
    partition = world.cluster[2].partition()

    def elected() -> None:
        world.cluster.change(2, leader=2, isr=[2])
        assert partition.role is ReplicaRole.LEADER
        assert world.cluster[2].append(b"six").error_code == ErrorCode.NONE
        assert (world.own.log_end_offset, world.own.high_watermark) == (7, 6)

    await world.meanwhile(elected)
    assert world.own.high_watermark == 7
    assert world.own.epochs.entries == [(0, 0), (1, 3), (2, 5), (4, 6)]
    assert not world.own.files.exists(marker_path(world.own.directory))


async def test_s5_who_is_elected_before_its_log_is_emptied_keeps_it() -> None:
    world = Follower()
    await world.seed()
    partition, files = world.cluster[2].partition(), world.own.files
    flush: Callable[..., Awaitable[None]] = files.flush_dir

    async def elected(*given: Any) -> None:
        files.flush_dir = flush
        await flush(*given)
        world.cluster.change(2, leader=2, isr=[2])
        world.cluster[2].append(b"zero")

    files.flush_dir = elected
    await world.turned_away()
    assert partition.is_leader
    assert (world.own.log_start_offset, world.own.log_end_offset) == (0, 1)
    assert world.own.high_watermark == 1
    assert not world.own.bounds.bootstrapping
    assert not files.exists(marker_path(world.own.directory))
