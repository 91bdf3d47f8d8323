"""The copying driver: the order of its steps, and the state that the next leader finds (S1-S3,
S5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.tiering import copying
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.settings import QuotaSettings
from protocol.batch.header import MAX_TIMESTAMP_POSITION
from protocol.batch.records import Producer
from storage.files import File
from storage.log.checkpoints import decode_epochs
from storage.log.producers import CorruptSnapshot
from storage.objects import ObjectRetriable, Weather
from storage.tiered.batches import CorruptSegment, WrongTimes
from storage.tiered.layout import Kind
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from testkit.memory.logs import append, batch, fill
from testkit.memory.tier_brokers import UNLIMITED, Killed, TierBroker, TierWorld
from testkit.memory.turns import until
from testkit.records.tier import PARTITION

COPY_STEPS = 16
"""Steps of one segment: two records and six objects, each before and after."""


async def test_closed_segments_go_in_order_and_whole(world: TierWorld) -> None:
    leader = await world.leader_with()
    await leader.copy_all()
    bases = [one.base_offset for one in leader.log.segments]
    assert leader.finished() == [(a, b - 1) for a, b in zip(bases, bases[1:], strict=False)]
    for copied in leader.known.finished():
        local = leader.log.segments[bases.index(copied.start_offset)]
        assert await world.bytes_of(copied) == local.log.pread(local.size_bytes, 0)
        assert copied.max_timestamp_ms == local.max_timestamp()[0]
    assert leader.log.bounds.copied_to == bases[-1]
    assert leader.led.counters.copy_bytes == sum(one.size_bytes for one in leader.known.finished())
    assert leader.led.being_copied == set()
    await world.check(leader)


async def test_unchanged_partition_is_not_planned_again(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await world.leader_with()
    await leader.copy_all()
    plan, planned = copying.plan_copy_steps, []

    def counted(*given: Any, **named: Any) -> Any:
        planned.append(given)
        return plan(*given, **named)

    monkeypatch.setattr(copying, "plan_copy_steps", counted)
    for _ in range(3):
        await leader.copy_all()
    assert len(planned) == 1
    fill(leader.log, 2, size=50)
    await leader.copy_all()
    assert len(planned) == 2, "other segments"
    leader.commit()
    before = len(leader.finished())
    await leader.copy_all()
    assert len(leader.finished()) == before + 1, "another high watermark"
    seen = len(planned)
    leader.lead(1)
    await leader.copy_all()
    assert len(planned) == seen + 1, "another leadership"
    leader.log.history.lead(2)
    await leader.copy_all()
    assert len(planned) == seen + 2, "another lineage"


async def test_copier_with_a_lag_in_time_copies_once_the_clock_has_reached_it(
    world: TierWorld,
) -> None:
    """KIP-1241: nothing but the time changes between the two passes; the metrics count at once."""
    leader = await world.leader_with(remote_copy_lag_ms=60_000, remote_copy_lag_bytes=-1)
    await leader.copy_all()
    assert leader.finished() == []
    closed = leader.log.segments[:-1]
    assert leader.led.backlog.copy_segments == len(closed)
    assert leader.led.backlog.copy_bytes == sum(one.size_bytes for one in closed)
    newest_ms = max(one.largest_timestamp_ms() for one in closed)
    world.clock.advance(60_000 + max(0, newest_ms - world.clock.now_ms()))
    await leader.copy_all()
    assert len(leader.finished()) == len(closed)
    assert leader.led.backlog.copy_segments == 0


async def test_copier_with_a_lag_in_bytes_leaves_that_size_uncopied(world: TierWorld) -> None:
    leader = await world.leader_with(
        remote_copy_lag_ms=-1, retention_ms=-1, remote_copy_lag_bytes=1
    )
    sizes = [one.size_bytes for one in leader.log.segments]
    leader.log.configure(replace(leader.log.config, remote_copy_lag_bytes=sum(sizes[2:])))
    await leader.copy_all()
    assert len(leader.finished()) == 2, "the third has fewer bytes behind it than the lag"


async def test_copier_takes_the_steps_of_one_segment_in_order(world: TierWorld) -> None:
    leader = await world.leader_with()
    await leader.copier.copy_once(leader.led)
    steps = [step.removeprefix("after ") for step in leader.steps.taken if "after" in step]
    kinds = {f"put {kind.value}" for kind in Kind if kind is not Kind.TXN_INDEX}
    assert steps[0] == "COPY_STARTED"
    assert set(steps[1:-1]) == kinds
    assert steps[-2:] == ["put manifest", "COPY_FINISHED"]
    assert len(leader.steps.taken) == 2 * len(steps) == COPY_STEPS


async def test_s2_nothing_above_the_last_stable_offset(world: TierWorld) -> None:
    leader = world.broker()
    await leader.ready()
    fill(leader.log, 7, size=50)
    bases = [one.base_offset for one in leader.log.segments]
    leader.log.update_high_watermark(bases[2] - 1)
    await leader.copy_all()
    assert leader.finished() == [(0, bases[1] - 1)]
    leader.log.update_high_watermark(bases[2])
    await leader.copy_all()
    assert leader.finished()[-1] == (bases[1], bases[2] - 1)


async def test_copier_flushes_a_segment_before_its_copy(world: TierWorld) -> None:
    leader = await world.leader_with()
    assert leader.log.recovery_point == 0
    begun: list[int] = []
    leader.steps.happens = lambda step: begun.append(leader.log.recovery_point)
    await leader.copier.copy_once(leader.led)
    assert begun[0] >= leader.finished()[0][1] + 1


async def test_nothing_before_the_metadata_are_read(world: TierWorld) -> None:
    leader = world.broker()
    fill(leader.log, 7, size=50)
    leader.commit()
    assert not await leader.copier.copy_once(leader.led)
    assert world.bucket.keys == []
    await leader.ready()
    await leader.copy_all()
    assert leader.finished() != []


async def test_s6_nothing_by_half_of_the_metadata(world: TierWorld) -> None:
    """S6: a new leader with half of the metadata would copy the other half once more."""
    old = await world.leader_with()
    await old.copy_all()
    new = world.broker(retention_ms=0)
    fill(new.log, 7, size=50)
    new.commit()
    new.link.visible = 2
    new.journal.take(PARTITION)
    await until(lambda: new.link.reads > 0)
    before = world.bucket.keys
    async with asyncio.timeout(5):
        assert not await new.copier.copy_once(new.led)
        await new.expire()
    assert world.bucket.keys == before
    assert new.steps.taken == []


@pytest.mark.parametrize(
    "config",
    [{"remote_log_copy_disable": True}, {"remote_storage_enable": False}],
)
async def test_not_where_copies_are_switched_off(
    world: TierWorld, config: dict[str, object]
) -> None:
    leader = await world.leader_with(**config)
    await leader.copy_all()
    assert world.bucket.keys == []


async def test_not_while_the_epochs_of_the_remote_part_are_lost(world: TierWorld) -> None:
    leader = await world.leader_with(local_retention_bytes=0)
    await leader.copier.copy_once(leader.led)
    assert leader.log.retention(0) == 1
    leader.log.epochs.truncate_from_start(
        leader.log.local_log_start_offset, leader.log.log_end_offset
    )
    assert leader.log.history.lacks_remote_part
    assert not await leader.copier.copy_once(leader.led)
    assert len(leader.finished()) == 1


async def test_copy_has_the_producers_and_epochs_at_its_end(world: TierWorld) -> None:
    """S5: a follower that begins behind the copy starts from this state."""
    leader = world.broker()
    await leader.ready()
    append(leader.log, batch(size=200, producer=Producer(7, 0, 0)))
    leader.log.history.lead(3)
    leader.lead(3)
    append(leader.log, batch(size=200, producer=Producer(7, 0, 1)), epoch=3)
    append(leader.log, batch(size=200), epoch=3)
    leader.commit()
    await leader.copy_all()
    second = max(leader.known.finished(), key=lambda one: one.start_offset)
    store = SegmentStore(world.bucket)
    manifest = await store.manifest(second)
    epochs = decode_epochs(await store.read_whole(manifest, Kind.LEADER_EPOCHS))
    assert epochs == [(0, 0), (3, 1)]
    kept = await store.read_whole(manifest, Kind.PRODUCER_SNAPSHOT)
    leader.log.producers.load_snapshot(kept, 0)
    assert leader.log.producers.encode_snapshot() == kept
    assert b"\x00\x07" in kept


async def test_missing_producer_snapshot_is_rebuilt_for_the_copy(world: TierWorld) -> None:
    """F21: recovery after a crash, or an operator, may remove producer snapshots."""
    leader = world.broker()
    await leader.ready()
    for sequence in range(3):
        append(leader.log, batch(size=200, producer=Producer(7, 0, sequence)))
    leader.commit()
    at = leader.log.segments[1].base_offset
    kept = leader.log.files.read(leader.log.snapshots.path(at))
    leader.log.snapshots.remove(at)
    await leader.copier.copy_once(leader.led)
    (copied,) = leader.known.finished()
    store = SegmentStore(world.bucket)
    found = await store.read_whole(await store.manifest(copied), Kind.PRODUCER_SNAPSHOT)
    assert found == kept


async def test_copy_with_unknown_producers_is_refused(world: TierWorld) -> None:
    leader = await world.leader_with(local_retention_bytes=0)
    await leader.copier.copy_once(leader.led)
    leader.log.retention(0)
    for offset in list(leader.log.snapshots.offsets):
        leader.log.snapshots.remove(offset)
    with pytest.raises(CorruptSnapshot):
        await leader.copier.copy_once(leader.led)


async def test_a_segment_that_goes_in_mid_copy_is_copied_all_the_same(world: TierWorld) -> None:
    leader = await world.leader_with()

    def cut() -> None:
        start = leader.log.segments[1].base_offset
        leader.log.advance_log_start(start)
        leader.log.trimming.saved(start)
        leader.log.retention(0)

    leader.steps.at(3, cut)
    await leader.copier.copy_once(leader.led)
    assert leader.log.segments.first_base_offset > 0
    assert len(leader.finished()) == 1
    await leader.copy_all()
    await leader.expire()
    await world.check(leader)


# Failures ------------------------------------------------------------------------------------

NOT_WRITTEN = TierUnavailable("not read back in time")
STORE_FAILS = ObjectRetriable("key", "503 SlowDown")


async def take_over(world: TierWorld, other: TierBroker) -> None:
    """Let a follower lead, copy and expire; check the tier's promises."""
    await other.sees_all()
    other.lead(1)
    other.commit()
    await other.copy_all()
    await other.expire()
    await world.check(other)


@pytest.mark.parametrize("step", range(COPY_STEPS))
async def test_f33_an_error_at_any_step_leaves_one_finished_copy(
    world: TierWorld, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F33: the error comes before the step is done, or after it, as a lost answer."""
    monkeypatch.setattr("broker.tiering.copying.FINISH_PAUSE_MS", 0.0)
    leader = await world.leader_with()

    def fail() -> None:
        raise STORE_FAILS if "put" in leader.steps.taken[-1] else NOT_WRITTEN

    leader.steps.at(step, fail)
    try:
        await leader.copier.copy_once(leader.led)
    except (ObjectRetriable, TierUnavailable):
        assert leader.led.being_copied == set()
    await leader.copy_all()
    await leader.expire()
    starts = [first for first, _ in leader.finished()]
    assert len(starts) == len(set(starts)) == len(leader.log.segments) - 1
    await world.check(leader)


@pytest.mark.parametrize("step", range(COPY_STEPS))
async def test_a_kill_at_any_step_is_cleared_away_by_the_next_leader(
    world: TierWorld, step: int
) -> None:
    leader = await world.leader_with()
    other = await world.follower_of(leader)

    def die() -> None:
        raise Killed

    leader.steps.at(step, die)
    with pytest.raises(Killed):
        await leader.copier.copy_once(leader.led)
    await take_over(world, other)
    assert other.log.bounds.copied_to >= other.log.segments.active.base_offset


@pytest.mark.parametrize("step", range(COPY_STEPS))
async def test_s6_an_election_at_any_step_gives_one_finished_copy_of_the_lineage(
    world: TierWorld, step: int
) -> None:
    """S6: the old leader does not notice until it checks, and its next step may come at any
    time."""
    leader = await world.leader_with()
    other = await world.follower_of(leader)

    def elect() -> None:
        leader.replica.is_leader = False
        leader.replica.leader_epoch = 1

    leader.steps.at(step, elect)
    await leader.copier.copy_once(leader.led)
    await take_over(world, other)
    assert not await leader.copier.copy_once(leader.led)


async def test_a_leader_that_was_replaced_takes_its_objects_back(world: TierWorld) -> None:
    leader = await world.leader_with()

    def elect() -> None:
        leader.replica.leader_epoch = 1  # elected again in between: that is another leadership

    leader.steps.at(COPY_STEPS - 4, elect)
    await leader.copier.copy_once(leader.led)
    assert world.bucket.keys == []
    assert "before COPY_FINISHED" not in leader.steps.taken
    (begun,) = leader.known.segments()
    assert begun.state is SegmentState.COPY_STARTED


async def test_a_copy_whose_end_is_not_known_stays(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record may be written: it is written again until that is certain, and nothing is
    deleted."""
    monkeypatch.setattr("broker.tiering.copying.FINISH_PAUSE_MS", 0.0)
    leader = await world.leader_with()
    tries: list[str] = []

    def fail_finishing(step: str) -> None:
        if step == "after COPY_FINISHED":
            tries.append(step)
            if len(tries) < 3:
                assert len(leader.led.being_copied) == 1
                raise NOT_WRITTEN

    leader.steps.happens = fail_finishing
    await leader.copier.copy_once(leader.led)
    assert len(tries) == 3
    assert len(leader.finished()) == 1
    assert "before delete" not in leader.steps.taken
    await world.check(leader)


async def test_copy_deleted_by_another_leader_is_removed(world: TierWorld) -> None:
    """The next leader found the copy unfinished; objects stored since belong to no copy."""
    leader = await world.leader_with()
    other = world.broker()
    await other.ready()
    other.follow(leader)
    other.lead(1)
    other.commit()
    told = asyncio.Event()

    async def clear_away() -> None:
        await other.sees_all()
        await other.copy_all()
        await other.expire()
        told.set()

    def begin() -> None:
        world.supervisor.spawn("other", clear_away())

    leader.steps.at(1, begin)
    gate = leader.objects.put

    async def slow_put(key: str, source: object) -> None:
        await told.wait()
        await gate(key, source)  # type: ignore[arg-type]

    leader.objects.put = slow_put  # type: ignore[method-assign]
    await leader.copier.copy_once(leader.led)
    await world.check(other)


async def test_s9_a_store_that_is_down_costs_nothing_but_the_copies(world: TierWorld) -> None:
    leader = await world.leader_with(local_retention_bytes=0)
    leader.objects.weather = Weather(down=True)
    with pytest.raises(ObjectRetriable):
        await leader.copy_all()
    assert leader.led.counters.copy_errors == 1
    assert leader.log.retention(0) == 0, "local deletion stops"
    fill(leader.log, 4, size=50)
    leader.commit()
    backlog = leader.led.backlog.copy_bytes
    with pytest.raises(ObjectRetriable):
        await leader.copy_all()
    assert leader.led.backlog.copy_bytes > backlog, "the lag grows"
    leader.objects.weather = Weather()
    await leader.copy_all()
    backlog = leader.led.backlog
    assert (backlog.copy_segments, backlog.copy_bytes) == (0, 0), "and returns to 0"
    await leader.expire()
    assert leader.log.retention(0) > 0
    await world.check(leader)


async def test_s5_copied_offsets_are_those_of_the_lineage_not_the_highest(world: TierWorld) -> None:
    """S5: after an unclean election the old leader's copies beyond the new end are not of this
    log."""
    old = await world.leader_with()
    await old.copy_all()
    lost = max(last for _, last in old.finished())
    new = world.broker()
    await new.ready()
    fill(new.log, 3, size=50)
    new.commit()
    new.lead(5)
    for _ in range(6):
        append(new.log, batch(size=50), epoch=5)
    new.commit()
    await new.sees_all()
    await new.copy_all()
    await new.expire()
    await world.check(new)
    own = [one for one in new.known.finished() if one.epochs[-1].epoch == 5]
    assert own and min(one.start_offset for one in own) <= lost
    assert new.log.bounds.copied_to == new.log.segments.active.base_offset


async def test_copied_bytes_count_against_the_rate(world: TierWorld) -> None:
    """KIP-956: before each segment the driver waits until the rate is below the limit again."""
    leader = await world.leader_with()
    leader.quota = QuotaSettings(bytes_per_second=100, windows=2, window_seconds=1)
    pauses_ms: list[float] = []

    async def wait() -> None:
        pauses_ms.append(leader.limit.pause_ms())
        world.clock.advance(int(pauses_ms[-1]) + 1)

    leader.limit.wait = wait  # type: ignore[method-assign]
    await leader.copy_all()
    copied = [one.size_bytes for one in leader.known.finished()]
    assert pauses_ms[0] == 0.0
    assert len(pauses_ms) == len(copied)
    assert 0.5 * sum(copied[:-1]) <= sum(pauses_ms) / 1000.0 * 100 <= sum(copied)
    leader.quota = UNLIMITED
    assert leader.limit.pause_ms() == 0.0, "the limit is the newest one"


async def test_segment_read_wrongly_is_copied_once_it_reads_correctly(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1, F20: local segments are removed once copied, so the copy must be right. No object is left
    over."""
    leader = await world.leader_with()
    right = leader.log.files.pread

    async def wrong(file: File, size_bytes: int, position: int) -> bytes:
        data = bytearray(await right(file, size_bytes, position))
        data[-1] ^= 1
        return bytes(data)

    with monkeypatch.context() as patch:
        patch.setattr(leader.log.files, "pread", wrong)
        with pytest.raises(CorruptSegment):
            await leader.copier.copy_once(leader.led)
    assert leader.led.counters.copy_errors == 1
    assert (leader.finished(), world.bucket.keys) == ([], [])
    await leader.copy_all()
    assert leader.finished()[0][0] == 0
    await leader.expire()
    await world.check(leader)


async def test_s8_a_time_that_was_read_wrongly_once_is_not_that_of_the_copy(
    world: TierWorld,
) -> None:
    """S8: a copy's times come from its batches, so the next attempt corrects the misread one."""
    leader = await world.leader_with()
    segment = leader.log.segments[0]
    highest_ms, _ = segment.max_timestamp()
    file = leader.log.files.open(segment.log.path)
    right = file.pread(1, MAX_TIMESTAMP_POSITION)
    file.pwrite(b"\x01", MAX_TIMESTAMP_POSITION)
    segment.doubt_times()
    assert segment.max_timestamp()[0] > highest_ms
    file.pwrite(right, MAX_TIMESTAMP_POSITION)
    file.close()
    with pytest.raises(WrongTimes):
        await leader.copier.copy_once(leader.led)
    assert (leader.finished(), world.bucket.keys) == ([], [])
    await leader.copy_all()
    copied = next(iter(leader.known.finished()))
    assert (copied.start_offset, copied.max_timestamp_ms) == (0, highest_ms)
    await leader.expire()
    await world.check(leader)


@pytest.mark.parametrize("kind", [Kind.OFFSET_INDEX, Kind.TIME_INDEX])
@pytest.mark.parametrize("rotten", [False, True])
async def test_f20_the_indexes_of_a_copy_are_those_of_its_batches(
    world: TierWorld, kind: Kind, rotten: bool
) -> None:
    """F20: a damaged index would mislead readers of the tier as long as the copy lives (tiered seed
    550).

    If the disk is intact, the copy's indexes equal the disk's.
    """
    leader = await world.leader_with(12, segment_bytes=900, index_interval_bytes=60)
    segment = leader.log.segments[0]
    segment.seal()
    index = segment.offset_index if kind is Kind.OFFSET_INDEX else segment.time_index
    expected = leader.log.files.read(index.path)
    assert expected
    if rotten:
        # The highest bit of the last entry's offset.
        at = len(expected) - (8 if kind is Kind.OFFSET_INDEX else 4)
        file = leader.log.files.open(index.path)
        file.pwrite(bytes([expected[at] ^ 0x80]), at)
        file.close()
    await leader.copy_all()
    store = SegmentStore(world.bucket)
    manifest = await store.manifest(next(iter(leader.known.finished())))
    assert await store.read_whole(manifest, kind) == expected
