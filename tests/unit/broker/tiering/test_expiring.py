"""The expiring driver: the segments deleted, their order, and the state after a failure (S3,
S4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.tiering import expiring
from broker.tiering.local_cleaning import note_copied
from broker.tiering.record_writer import TierUnavailable
from protocol.batch.records import NO_PRODUCER
from storage.log.errors import OffsetOutOfRange
from storage.objects import ObjectRetriable, Weather
from storage.tiered.states import SegmentState
from testkit.memory.logs import T0, append, batch, fill
from testkit.memory.tier_brokers import Killed, TierBroker, TierWorld
from testkit.records.tier import segment, segment_id, update

DELETE_STEPS = 10
"""Steps of one segment, each before and after.

They are the log start, two records and two deletes; the manifest is deleted first.
"""
NOT_WRITTEN = TierUnavailable("not read back in time")
STORE_FAILS = ObjectRetriable("key", "503 SlowDown")


async def copied(world: TierWorld, batches: int = 7, **config: object) -> TierBroker:
    """Return a leader whose closed segments are all in the tier and not on its disk."""
    broker = await world.leader_with(batches, **{"local_retention_bytes": 0, **config})
    await broker.copy_all()
    broker.log.retention(T0)
    broker.steps.taken.clear()
    return broker


async def test_nothing_expires_without_a_limit(world: TierWorld) -> None:
    leader = await copied(world)
    before = world.bucket.keys
    await leader.expire()
    assert world.bucket.keys == before
    assert leader.steps.taken == []
    assert leader.led.backlog.remote_segments == 3
    assert leader.led.backlog.remote_bytes == sum(o.size_bytes for o in leader.known.finished())


async def test_how_long_it_took_to_add_up_the_sizes(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await copied(world)
    plan = expiring.plan_expiry

    def slow(*given: Any, **named: Any) -> Any:
        world.clock.advance(7)
        return plan(*given, **named)

    monkeypatch.setattr(expiring, "plan_expiry", slow)
    await leader.expire()
    assert leader.led.backlog.size_ms == 7


async def test_by_time(world: TierWorld) -> None:
    leader = await copied(world, retention_ms=1000)
    await leader.expire()
    assert len(leader.finished()) == 3
    world.clock.advance(1001)
    await leader.expire()
    assert leader.finished() == []
    assert leader.log.log_start_offset == leader.log.local_log_start_offset
    assert world.bucket.keys == []
    await world.check(leader)


async def test_s2_who_was_cut_off_deletes_nothing_of_a_later_leader(world: TierWorld) -> None:
    """S2: a cut-off leader with an old, shorter retention deletes nothing of its successor.

    It shares only the first records of the successor's copy, whose disk may have none of them (seed
    4540).
    """
    old = await world.leader_with(4)
    new = await world.follower_of(old)
    new.lead(1)
    fill(new.log, 9, epoch=1, size=50)
    new.commit()
    await new.copy_all()
    assert [[at.epoch for at in one.epochs] for one in new.known.finished()][1] == [0, 1]
    fill(old.log, 9, size=50)
    old.commit()
    old.log.configure(replace(old.log.config, retention_ms=1))
    world.clock.advance(1000)
    before = new.finished()
    await old.sees_all()
    await old.expire()
    await new.sees_all()
    assert new.finished() == before
    assert old.log.log_start_offset == 0
    await world.check(new)


async def test_s2_leader_stops_deleting_once_a_later_leader_has_copies(world: TierWorld) -> None:
    """S2: the leader learns of them between two deletions of its plan."""
    old = await copied(world, 9, retention_ms=1000)
    other = world.broker()
    await other.ready()
    world.clock.advance(1001)
    later = segment(900, 90, 99, {1: 90}, broker_id=2)

    async def copies() -> None:
        await other.journal.write(later)
        await old.sees_all()

    calls = ["save", "has saved", "write DELETE_STARTED", "has written DELETE_STARTED"]
    old.stops.at(len(calls) + 3, copies)
    await old.expire()
    assert old.stops.taken[: len(calls)] == calls
    assert old.stops.happened
    assert old.stops.taken.count("write DELETE_STARTED") == 1


async def test_unchanged_partition_is_not_planned_again(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await copied(world, retention_ms=1000)
    plan, planned = expiring.plan_expiry, []

    def counted(*given: Any, **named: Any) -> Any:
        planned.append(given)
        return plan(*given, **named)

    monkeypatch.setattr(expiring, "plan_expiry", counted)
    for _ in range(3):
        await leader.expire()
    assert len(planned) == 1
    leader.log.configure(replace(leader.log.config, retention_ms=900))
    await leader.expire()
    assert len(planned) == 2, "other settings"
    fill(leader.log, 2, size=50)
    await leader.expire()
    assert len(planned) == 3, "other segments"
    leader.commit()
    await leader.expire()
    assert len(planned) == 4, "another high watermark"
    await leader.copy_all()
    await leader.expire()
    assert len(planned) == 5, "another copy"
    world.clock.advance(900)
    await leader.expire()
    assert len(planned) == 5, "not older than its time yet"
    world.clock.advance(1)
    await leader.expire()
    assert len(planned) == 6
    assert leader.finished() == [], "time alone"
    await world.check(leader)


async def test_by_size_local_bytes_count_where_they_have_no_copy(world: TierWorld) -> None:
    leader = await copied(world)
    one = next(leader.known.finished()).size_bytes
    local = leader.log.size_bytes
    leader.log.configure(replace(leader.log.config, retention_bytes=2 * one + local))
    await leader.expire()
    assert len(leader.finished()) == 2
    fill(leader.log, 2, size=50)
    leader.commit()
    await leader.expire()
    assert len(leader.finished()) == 1
    await world.check(leader)


async def test_without_delete_among_the_policies_nothing_expires(world: TierWorld) -> None:
    leader = await copied(world, retention_ms=1, cleanup_policy="")
    world.clock.advance(50_000)
    await leader.expire()
    assert len(leader.finished()) == 3


async def test_s4_the_log_start_is_durable_before_anything_is_deleted(world: TierWorld) -> None:
    leader = await copied(world, retention_ms=1000)
    world.clock.advance(1001)
    saved: list[int] = []

    def look(step: str) -> None:
        if step in ("before DELETE_STARTED", "before delete"):
            saved.append(leader.saved_start)

    leader.steps.happens = look
    await leader.expire()
    assert saved
    assert min(saved) == leader.log.log_start_offset > 0


async def test_s4_delete_records_reaches_into_the_tier(world: TierWorld) -> None:
    leader = await copied(world)
    (first, second, third) = leader.finished()
    leader.log.advance_log_start(second[0] + 1)
    await leader.expire()
    assert leader.finished() == [second, third], "half a segment stays whole"
    assert leader.saved_start == second[0] + 1
    leader.log.advance_log_start(third[1] + 1)
    await leader.expire()
    assert leader.finished() == []
    assert first[0] == 0
    with pytest.raises(OffsetOutOfRange):
        leader.log.read(0, 1, max_offset=1)
    await world.check(leader)


async def test_f23_a_clock_that_jumps_deletes_nothing_by_itself(world: TierWorld) -> None:
    leader = await copied(world, retention_ms=1000)
    await leader.expire()
    world.clock.jump(3_600_000)
    await leader.expire()
    world.clock.advance(500)
    await leader.expire()
    assert len(leader.finished()) == 3
    world.clock.advance(501)
    await leader.expire()
    assert leader.finished() == [], "time itself went on"


async def test_the_order_for_one_segment(world: TierWorld) -> None:
    leader = await copied(world, batches=3)
    leader.log.advance_log_start(2)
    await leader.expire()
    done = [step.removeprefix("after ") for step in leader.steps.taken if "after" in step]
    assert done == ["save", "DELETE_STARTED", "delete", "delete", "DELETE_FINISHED"]
    assert len(leader.steps.taken) == DELETE_STEPS


async def test_not_what_this_leader_is_copying(world: TierWorld) -> None:
    leader = await copied(world, batches=3)
    fill(leader.log, 2, size=50)
    leader.commit()
    seen: list[int] = []

    def look(step: str) -> None:
        if step == "after put log":
            plan = leader.expirer._plan(leader.led, leader.known, leader.expirer._now_ms())
            seen.append(len(plan.deletions))

    leader.steps.happens = look
    await leader.copy_all()
    assert seen == [0]


@pytest.mark.parametrize("step", range(DELETE_STEPS))
async def test_f33_error_at_any_step_is_repaired_by_the_next_pass(
    world: TierWorld, step: int
) -> None:
    leader = await copied(world)
    leader.log.advance_log_start(leader.finished()[0][1] + 1)

    def fail() -> None:
        name = leader.steps.taken[-1]
        if "delete" in name:
            raise STORE_FAILS
        raise OSError(5, "the disk") if "save" in name else NOT_WRITTEN

    leader.steps.at(step, fail)
    with pytest.raises((ObjectRetriable, TierUnavailable, OSError)):
        await leader.expire()
    await leader.expire()
    assert len(leader.finished()) == 2
    await world.check(leader)


@pytest.mark.parametrize("step", range(DELETE_STEPS))
async def test_a_kill_at_any_step_leaves_nothing_that_the_next_leader_does_not_find(
    world: TierWorld, step: int
) -> None:
    """S4: nothing is deleted that a start from the checkpoint would still expose."""
    leader = await copied(world)
    other = world.broker()
    await other.ready()
    fill(other.log, 7, size=50)
    other.commit()
    leader.log.advance_log_start(leader.finished()[0][1] + 1)

    def die() -> None:
        raise Killed

    leader.steps.at(step, die)
    with pytest.raises(Killed):
        await leader.expire()
    await other.sees_all()
    # The state that the dead process left on its disk, and that its followers had received.
    kept = [one for one in other.known.segments() if one.end_offset >= leader.saved_start]
    assert all(one.state is SegmentState.COPY_FINISHED for one in kept), "S4"
    other.log.advance_log_start(leader.saved_start)
    other.lead(1)
    other.commit()
    await other.expire()
    await world.check(other)


@pytest.mark.parametrize("step", range(DELETE_STEPS))
async def test_an_election_at_any_step_ends_it(world: TierWorld, step: int) -> None:
    leader = await copied(world, retention_ms=1000)
    world.clock.advance(1001)
    leader.steps.at(step, lambda: setattr(leader.replica, "is_leader", False))
    await leader.expire()
    assert len([one for one in leader.steps.taken if one == "after DELETE_FINISHED"]) <= 1
    other = world.broker()
    await other.ready()
    fill(other.log, 7, size=50)
    other.commit()
    other.log.advance_log_start(leader.log.log_start_offset)
    other.lead(1)
    other.commit()
    await other.expire()
    await world.check(other)


@pytest.mark.parametrize("deleted", [1, 2, 3])
async def test_s1_leader_without_the_newest_log_start_drops_deleted_offsets(
    world: TierWorld, deleted: int
) -> None:
    """S1: the old leader deleted expired segments, and died before any follower fetched from it."""
    old = await copied(world)
    new = world.broker(local_retention_bytes=0)
    await new.ready()
    fill(new.log, 7, size=50)
    new.commit()
    await new.sees_all()
    new.look()
    new.log.retention(T0)
    old.log.advance_log_start(old.finished()[deleted - 1][1] + 1)
    await old.expire()
    await new.sees_all()
    assert new.log.log_start_offset == 0
    new.lead(1)
    new.commit()
    await new.expire()
    assert new.log.log_start_offset == new.saved_start == old.log.log_start_offset
    await world.check(new)


async def test_a_gap_that_no_deletion_explains_is_left_to_people(world: TierWorld) -> None:
    """A copy that was never finished covers offsets that the log has nowhere else."""
    leader = await copied(world)
    second = world.broker(local_retention_bytes=0)
    await second.ready()
    fill(second.log, 7, size=50)
    second.commit()
    await second.sees_all()
    second.look()
    second.log.retention(T0)
    leader.log.advance_log_start(leader.finished()[0][1] + 1)
    await leader.expire()
    await leader.write(segment(99, 0, 1))
    await second.sees_all()
    second.lead(1)
    second.commit()
    second.led.being_copied.add(segment_id(99))
    await second.expire()
    assert second.log.log_start_offset == 0


async def test_kafka_17062_dangling_copies_go_and_count_for_nothing(world: TierWorld) -> None:
    leader = await copied(world)
    leader.objects.weather = Weather(down=True)
    fill(leader.log, 2, size=50)
    leader.commit()
    for _ in range(4):
        with pytest.raises(ObjectRetriable):
            await leader.copier.copy_once(leader.led)
    leader.objects.weather = Weather()
    assert len(list(leader.known.unfinished())) == 4
    whole = sum(one.size_bytes for one in leader.known.finished()) + leader.log.size_bytes
    leader.log.configure(replace(leader.log.config, retention_bytes=whole))
    await leader.expire()
    assert leader.log.log_start_offset == 0, "nothing good expires sooner because of them"
    assert len(leader.finished()) == 3
    await leader.copy_all()
    await world.check(leader)


async def test_s2_a_copy_that_is_finished_while_its_deletion_is_on_the_way_is_not_the_only_one(
    world: TierWorld,
) -> None:
    """S2: an earlier leader may write late; by then disks here or on followers have removed the
    records."""
    leader = await world.leader_with(7, local_retention_bytes=0)
    await leader.write(segment(1, 0, 1))
    known, counted = leader.known, []
    await leader.expire()
    assert [one.segment_id for one in known.unfinished()] == [segment_id(1)]
    await leader.copy_all()

    def finish(step: str) -> None:
        if step == "before DELETE_STARTED" and not counted:
            finished = update(1, SegmentState.COPY_FINISHED)
            assert known._update(finished).changed
            note_copied(leader.log, known)
            counted.append(leader.log.bounds.copied_to)

    leader.steps.happens = finish
    await leader.expire()
    assert counted[0] > 2
    note_copied(leader.log, known)
    assert leader.log.bounds.copied_to == counted[0]
    assert list(known.unfinished()) == []


async def test_copy_finished_after_the_plan_stays_until_another_plan(world: TierWorld) -> None:
    """S2: the plan deletes it as unfinished; it is finished while the log starts are saved."""
    leader = await world.leader_with(7, local_retention_bytes=0)
    await leader.write(segment(1, 0, 1))
    await leader.copy_all()
    known = leader.known

    def finish(step: str) -> None:
        if step == "after save":
            assert known._update(update(1, SegmentState.COPY_FINISHED)).changed

    leader.steps.happens = finish
    await leader.expire()
    found = known.get(segment_id(1))
    assert found is not None
    assert found.state is SegmentState.COPY_FINISHED


async def test_abandoned_copy_is_deleted_though_the_metadata_have_not_changed(
    world: TierWorld,
) -> None:
    """S3: a pass found nothing to do while the copy was in progress."""
    leader = await copied(world)
    await leader.write(segment(900, 0, 1))
    copy = segment_id(900)
    leader.led.being_copied.add(copy)
    await leader.expire()
    assert [one.segment_id for one in leader.known.unfinished()] == [copy]
    leader.led.being_copied.discard(copy)
    await leader.expire()
    assert list(leader.known.unfinished()) == []


async def test_plan_with_a_copy_deleted_since_goes_on_with_the_next_one(world: TierWorld) -> None:
    """S10: another leader's deletion of the first copy ends while the log starts are saved."""
    leader = await copied(world, retention_ms=1000)
    world.clock.advance(1001)
    known = leader.known
    first = min(known.finished(), key=lambda one: one.start_offset)
    number = int.from_bytes(first.segment_id, "big")

    def delete(step: str) -> None:
        if step == "after save":
            for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
                assert known._update(update(number, state)).changed

    leader.steps.happens = delete
    await leader.expire()
    assert leader.finished() == []
    assert not len(known)


async def test_failed_deletions_are_counted_and_repeated(world: TierWorld) -> None:
    leader = await copied(world, retention_ms=1000)
    world.clock.advance(1001)
    leader.objects.weather = Weather(down=True)
    for _ in range(2):
        with pytest.raises(ObjectRetriable):
            await leader.expire()
    assert leader.led.counters.delete_errors == 2
    assert leader.steps.taken.count("before DELETE_STARTED") == 1, (
        "what is begun is not begun again"
    )
    assert leader.led.backlog.delete_segments == 3
    leader.objects.weather = Weather()
    await leader.expire()
    assert leader.led.backlog.delete_segments == 0
    await world.check(leader)


async def test_lineages_that_lost_go(world: TierWorld) -> None:
    """S5, KAFKA-15241: an unclean election took back records that an old leader had copied."""
    old = await copied(world)
    lost = max(old.known.finished(), key=lambda one: one.end_offset)
    new = world.broker()
    await new.ready()
    fill(new.log, 3, size=50)
    new.commit()
    new.lead(5)
    for _ in range(6):
        append(new.log, batch(size=50, producer=NO_PRODUCER), epoch=5)
    new.commit()
    await new.sees_all()
    await new.copy_all()
    await new.expire()
    lineage = new.led.lineage
    assert all(lineage.shared(one) for one in new.known.finished())
    assert new.known.get(lost.segment_id) is None
    await world.check(new)


async def test_a_cut_above_what_is_committed_keeps_the_copies_of_the_rest(
    world: TierWorld,
) -> None:
    """S2: the log start does not pass a new leader's high watermark, which may be low."""
    old = await copied(world, retention_ms=1000)
    new = world.broker(retention_ms=1000)
    await new.ready()
    fill(new.log, 7, size=50)
    new.log.update_high_watermark(3)
    new.lead(1)
    world.clock.advance(1001)
    await new.expire()
    assert new.log.log_start_offset <= 3
    new.commit()
    await new.expire()
    assert new.finished() == []
    assert old.log.log_start_offset == 0
