"""A follower whose leader has the log's beginning only in the tier (KIP-405; case 2.2 of
KIP-1023)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import EARLIEST, LATEST, LeaderLog, ListOffsetsReset
from broker.tiering import following
from broker.tiering.counters import BuildCounters
from protocol.batch.control import build_end_txn_marker
from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from storage.log.producers import Origin
from storage.objects import Weather
from storage.tiered.states import SegmentState
from storage.tiered.values import SegmentUpdate
from testkit.memory.broker import batch
from testkit.memory.tier import partition_of, tiered
from tests.unit.broker.tiering.followers import World


@pytest.fixture
async def world() -> World:
    each = World()
    await each.fill()
    return each


async def test_the_leader_turns_the_follower_away(world: World) -> None:
    effects = world.cluster.fetch(2)
    assert [type(effect) for effect in effects] == [Reset]
    assert isinstance(effects[0], Reset)
    assert effects[0].error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


async def test_follower_begins_at_the_leaders_local_start(world: World) -> None:
    await world.reset()
    own, leaders = world.cluster[2].log, world.cluster[1].log
    assert (own.log_start_offset, own.local_log_start_offset) == (0, 9)
    assert own.log_end_offset == leaders.local_log_start_offset == 9
    assert own.epochs.entries == [(0, 0), (1, 3), (2, 6)]
    assert own.producers.encode_snapshot() == leaders.producers.encode_snapshot()
    assert world.saved == 1
    assert not own.bounds.bootstrapping


@pytest.mark.parametrize("appended", [b"of epoch 3", b""])
async def test_the_leaders_disk_may_begin_with_another_epoch_or_be_empty(appended: bytes) -> None:
    world = World()
    await world.fill(local=b"")
    world.cluster.change(leader=1)
    if appended:
        world.cluster[1].append(appended)
    await world.reset()
    own = world.cluster[2].log
    assert own.log_end_offset == own.local_log_start_offset == 9
    assert own.epochs.entries == [(0, 0), (1, 3), (2, 6)]


async def test_leader_without_an_epoch_in_its_answer_is_queried_for_its_last(world: World) -> None:
    """A follower with an empty disk looks up the last epoch, too."""
    world.link.names_no_epoch = True
    await world.reset()
    assert world.cluster[2].log.log_end_offset == 9


async def test_a_copy_may_reach_beyond_where_the_log_begins() -> None:
    """Two leaders rolled their segments at different offsets."""
    world = World()
    leader = world.cluster[1]
    leader.append(b"epoch", b"0")
    world.cluster.change(leader=1)
    leader.append(b"epoch", b"1")
    await tiered(world.tier, leader.log)
    world.objects.backing = world.tier.bucket
    await world.beginnings.begin(world.moved(), LeaderLog(0, 2, 0))
    own = world.cluster[2].log
    assert (own.log_end_offset, own.epochs.entries) == (2, [(0, 0)])


async def test_aborted_transaction_of_a_copy_that_reaches_beyond_is_open_at_the_begin() -> None:
    """T2: its marker lies in the copy, behind the offset where the log begins."""
    world = World()
    leader = world.cluster[1]
    in_txn = Producer(9, 0, 0, transactional=True)
    leader.log.append_as_leader(batch(b"aborted", producer=in_txn), 0, 0)
    leader.append(b"plain")
    marker = build_end_txn_marker(9, 0, commit=False, coordinator_epoch=1, timestamp_ms=0)
    leader.log.append_as_leader(marker, 0, 0, Origin.COORDINATOR)
    leader.log.update_high_watermark(3)
    world.cluster.change(leader=1)
    leader.append(b"epoch", b"1")
    await tiered(world.tier, leader.log)
    world.objects.backing = world.tier.bucket
    await world.beginnings.begin(world.moved(), LeaderLog(0, 2, 0))
    own = world.cluster[2].log
    assert (own.log_end_offset, own.last_stable_offset) == (2, 0)
    assert [(one.producer_id, one.txn_first_offset) for one in own.producers] == [(9, 0)]


async def test_then_it_follows_as_any_other(world: World) -> None:
    await world.reset()
    fetcher = world.cluster[2].fetchers[1]
    fetcher.resume(world.cluster[2].partition())
    world.cluster.fetch(2, times=3)
    assert world.cluster[2].log.log_end_offset == world.cluster[1].log.log_end_offset == 10
    assert world.cluster[2].log.high_watermark == 10


async def test_follower_does_not_begin_with_a_deleted_copy(world: World) -> None:
    world.cluster[1].log.advance_log_start(4)
    await world.reset()
    own = world.cluster[2].log
    assert (own.log_start_offset, own.local_log_start_offset) == (4, 9)
    assert own.epochs.entries == [(1, 4), (2, 6)]


async def test_metadata_that_are_not_ready_leave_all_as_it_was(world: World) -> None:
    world.tier.caches.clear()
    with pytest.raises(ApiError, match="not known"):
        await world.reset()
    assert world.cluster[2].log.log_end_offset == 0
    assert world.saved == 0


async def test_a_replica_that_is_new_here_waits_for_what_the_tier_has(world: World) -> None:
    """Regression: it was refused, and repeated all requests, until the metadata had been read."""
    world.known.clear()
    resetting = asyncio.ensure_future(world.reset())
    for _ in range(20):
        await asyncio.sleep(0)
    asked = list(world.link.asked)
    assert asked and not resetting.done()
    world.known.set()
    await resetting
    assert world.link.asked == asked
    assert world.cluster[2].log.log_end_offset == 9
    assert world.beginnings.counters == {"t": BuildCounters(requests=1, errors=0)}


async def test_metadata_that_do_not_come_are_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "KNOWN_WAIT_S", 0.0)
    world.known.clear()
    with pytest.raises(ApiError, match="not known"):
        await world.reset()
    assert world.cluster[2].log.log_end_offset == 0


async def test_a_copy_of_a_lineage_that_lost_is_of_no_use(world: World) -> None:
    partition = partition_of(world.cluster[1].log)
    cache = world.tier.cache_of(partition)
    assert cache is not None
    for one in list(cache.finished()):
        if one.end_offset == 8:
            await world.tier.delete(one)
    with pytest.raises(ApiError, match="offset 8 of epoch 2"):
        await world.reset()


@pytest.mark.parametrize("weather", [Weather(down=True), Weather(flipped=1.0), Weather(short=1.0)])
async def test_a_store_that_fails_leaves_all_as_it_was(world: World, weather: Weather) -> None:
    world.objects.weather = weather
    with pytest.raises(ApiError, match="cannot begin"):
        await world.reset()
    assert world.cluster[2].log.log_end_offset == 0
    world.objects.weather = Weather()
    await world.reset()
    assert world.beginnings.counters == {"t": BuildCounters(requests=2, errors=1)}
    assert world.cluster[2].log.log_end_offset == 9


async def test_a_leader_epoch_that_began_since_touches_nothing(world: World) -> None:
    old = world.moved()._replace(leader_epoch=world.moved().leader_epoch - 1)
    await ListOffsetsReset(2, world.beginnings).reset(world.link, old)
    assert old.partition.log.log_end_offset == 0


async def test_without_a_tier_here_nothing_is_built(world: World) -> None:
    moved = world.moved()
    await ListOffsetsReset(2).reset(world.link, moved)
    assert set(world.link.asked) == {LATEST, EARLIEST}
    assert moved.partition.log.log_end_offset == 0


async def copy_is_being_deleted(world: World) -> None:
    cache = world.tier.caches[partition_of(world.cluster[1].log).identity]
    last = max(cache.finished(), key=lambda one: one.end_offset)
    started = SegmentUpdate(
        partition=last.partition,
        segment_id=last.segment_id,
        broker_id=1,
        event_timestamp_ms=0,
        state=SegmentState.DELETE_STARTED,
    )
    assert cache.apply(cache.next_offset, started).changed


async def copy_is_deleted(world: World) -> None:
    cache = world.tier.caches[partition_of(world.cluster[1].log).identity]
    await world.tier.delete(max(cache.finished(), key=lambda one: one.end_offset))


async def leader_has_another_epoch(world: World) -> None:
    world.cluster.change(leader=1)


async def nothing(world: World) -> None:
    """Change nothing: the log begins."""


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (nothing, True),
        (copy_is_being_deleted, False),
        (copy_is_deleted, False),
        (leader_has_another_epoch, False),
    ],
)
async def test_begin_is_not_wanted_once_its_copy_or_its_epoch_has_ended(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    event: Callable[[World], Awaitable[None]],
    wanted: bool,
) -> None:
    """S1, S5: the log calls `still_wanted` after its first write, before it is emptied."""
    log = world.cluster[2].log
    answers: list[bool] = []

    async def begin_at(*_: object, still_wanted: Callable[[], bool]) -> bool:
        await event(world)
        answers.append(still_wanted())
        return False

    monkeypatch.setattr(log, "begin_at", begin_at)
    await world.reset()
    assert answers == [wanted]


async def test_begun_log_carries_out_the_effects_of_its_saved_epochs(world: World) -> None:
    """S5: until then a leader that was elected in the meantime commits nothing."""
    carried: list[object] = []
    world.beginnings._carry_out = lambda partition, _: carried.append(partition)
    await world.reset()
    assert carried == [world.cluster[2].partition()]
