"""Tasks by role: copying, expiry and local retention."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import replace
from typing import Any

import pytest

from broker.tiering import tasks as tasks_module
from broker.tiering.restoring import certain_copy
from broker.tiering.settings import RemoteSettings, TaskSettings
from broker.tiering.tasks import TierTasks
from protocol.batch.records import Producer
from storage.files import MemoryFiles
from storage.objects import Weather
from storage.tiered.cache import SegmentCache
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from testkit.memory.logs import T0, append, batch, fill, make_log
from testkit.memory.node_config import node
from testkit.memory.tier_brokers import TierBroker, TierWorld
from testkit.memory.turns import until
from testkit.records.tier import PARTITION, segment, segment_id, update

GIVEN = RemoteSettings.of(
    node(
        remote_log_storage_system_enable="true",
        rsm_config_url="file:///tier",
    )
)
QUICK = TaskSettings(
    interval_ms=5,
    backoff_ms=1,
    backoff_max_ms=5,
    jitter=0.2,
    copies_at_once=2,
    expirations_at_once=2,
    builds_at_once=1,
)


class Tasks:
    """The tasks of one broker; the clock advances with event-loop iterations."""

    def __init__(self, broker: TierBroker) -> None:
        self.broker = broker
        self.settings = replace(GIVEN, tasks=QUICK)
        self.tasks = TierTasks(
            node_id=broker.node_id,
            metadata=broker,
            store=SegmentStore(broker.objects),
            settings=lambda: self.settings,
            save_log_starts=self.save,
            supervisor=broker.world.supervisor,
            clock=broker.clock,
            rng=random.Random(1),
        )
        broker.journal.subscribe(self.tasks.changed)

    async def save(self) -> None:
        self.broker.saved_start = self.broker.log.log_start_offset

    async def until_copied(self) -> None:
        log = self.broker.log
        await self.until(lambda: log.bounds.copied_to >= log.segments.active.base_offset > 0)

    async def until(self, holds: object) -> None:
        def look() -> bool:
            self.broker.clock.advance(1)
            return bool(holds())  # type: ignore[operator]

        await until(look)


async def with_tasks(world: TierWorld, **config: object) -> Tasks:
    broker = world.broker(local_retention_bytes=0, **config)
    await broker.ready()
    return Tasks(broker)


async def test_how_far_a_log_is_copied_is_found_out_where_something_has_changed(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = await with_tasks(world)
    log, note, noted = on.broker.log, tasks_module.note_copied, []

    def counted(*given: Any) -> None:
        noted.append(given)
        note(*given)

    monkeypatch.setattr(tasks_module, "note_copied", counted)
    on.tasks.followed(on.broker.replica, PARTITION)
    fill(log, 5, size=50)
    for times in (1, 1, 1):
        await on.tasks._note(PARTITION)
        assert len(noted) == 1 + times
    log.bounds.copied_to -= 1
    await on.tasks._note(PARTITION)
    assert len(noted) == 3, "it was cut and has grown again"
    on.tasks.stopped(PARTITION)
    on.tasks.followed(on.broker.replica, PARTITION)
    assert len(noted) == 5, "what stopped begins anew"
    await on.tasks.close()


async def test_a_leader_copies_what_it_has_and_what_comes(world: TierWorld) -> None:
    one = await with_tasks(world)
    fill(one.broker.log, 7, size=50)
    one.broker.commit()
    one.tasks.led(one.broker.replica, PARTITION)
    await one.until_copied()
    fill(one.broker.log, 4, size=50)
    one.broker.commit()
    await one.until_copied()
    assert one.tasks.counters["t"].copy_requests == len(one.broker.finished())
    await one.tasks.close()
    await world.check(one.broker)


async def test_repeated_leadership_restarts_no_passes(world: TierWorld) -> None:
    one = await with_tasks(world)
    one.tasks.led(one.broker.replica, PARTITION)
    (led,) = one.tasks.leading.values()
    one.tasks.led(one.broker.replica, PARTITION)
    assert list(one.tasks.leading.values()) == [led]
    one.broker.replica.leader_epoch = 1
    one.tasks.led(one.broker.replica, PARTITION)
    assert list(one.tasks.leading.values()) != [led]
    assert not led.holds
    await one.tasks.close()


async def test_leadership_of_another_replica_object_replaces_the_passes(world: TierWorld) -> None:
    """S6: the replica was created again, so the known one's log is no longer the partition's."""
    one = await with_tasks(world)
    one.tasks.led(one.broker.replica, PARTITION)
    (led,) = one.tasks.leading.values()
    again = copy.copy(one.broker.replica)
    one.tasks.led(again, PARTITION)
    (newer,) = one.tasks.leading.values()
    assert newer is not led
    assert newer.replica is again
    await one.tasks.close()


async def test_partition_stopped_while_its_files_are_restored_lets_no_segment_go(
    world: TierWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: its topic may have left the tier in the meantime."""
    one = await with_tasks(world)
    fill(one.broker.log, 7, size=50)
    one.broker.commit()
    await one.broker.copy_all()
    one.tasks.followed(one.broker.replica, PARTITION)
    assert one.broker.log.bounds.copied_to > 0

    async def stopped(*_: object) -> None:
        one.tasks.stopped(PARTITION)

    monkeypatch.setattr(one.tasks, "_restore", stopped)
    await one.tasks._note(PARTITION)
    assert one.broker.log.bounds.copied_to == 0
    await one.tasks.close()


async def test_a_follower_copies_nothing_and_its_disk_gets_smaller(world: TierWorld) -> None:
    """Its log reaches the copied offsets only later, without any news of the tier."""
    leader, follower = await with_tasks(world), await with_tasks(world)
    fill(leader.broker.log, 7, size=50)
    leader.broker.commit()
    follower.tasks.followed(follower.broker.replica, PARTITION)
    leader.tasks.led(leader.broker.replica, PARTITION)
    await leader.until_copied()
    await leader.tasks.close()
    await follower.broker.sees_all()
    assert follower.broker.log.bounds.copied_to == 0
    follower.broker.follow(leader.broker)
    await follower.until_copied()
    assert follower.broker.log.retention(0) > 0
    assert follower.broker.steps.taken == []
    follower.tasks.stopped(PARTITION)
    assert follower.broker.log.bounds.copied_to == 0
    await follower.tasks.close()


async def test_expired_segments_go_once_the_store_is_back(
    world: TierWorld,
) -> None:
    one = await with_tasks(world, retention_bytes=0)
    one.broker.objects.weather = Weather(down=True)
    fill(one.broker.log, 7, size=50)
    one.broker.commit()
    one.tasks.led(one.broker.replica, PARTITION)
    counters = one.tasks.counters["t"]
    await one.until(lambda: counters.copy_errors >= 3)
    one.broker.objects.weather = Weather()
    last = one.broker.log.segments.active.base_offset
    await one.until(lambda: one.broker.log.log_start_offset == last)
    await one.until(lambda: world.bucket.keys == [] and not len(one.broker.known))
    await one.tasks.close()
    assert one.broker.saved_start == last
    await world.check(one.broker)


async def test_deposed_leader_ends_its_passes(world: TierWorld) -> None:
    one = await with_tasks(world)
    fill(one.broker.log, 7, size=50)
    one.broker.commit()
    one.tasks.led(one.broker.replica, PARTITION)
    await one.until_copied()
    one.broker.replica.is_leader = False
    one.tasks.followed(one.broker.replica, PARTITION)
    assert one.tasks.leading == {}
    before = world.bucket.keys
    fill(one.broker.log, 4, size=50)
    one.broker.commit()
    for _ in range(50):
        one.broker.clock.advance(1)
        await asyncio.sleep(0)
    assert world.bucket.keys == before
    await one.tasks.close()


async def with_lost_epochs(world: TierWorld) -> Tasks:
    """Return a leader in epoch 4 that has lost the epochs of its tiered data.

    Its disk begins with a record of epoch 3.
    """
    one = await with_tasks(world)
    broker, log = one.broker, one.broker.log
    for epoch in (0, 1, 3):
        fill(log, 4, epoch=epoch, size=50)
    broker.commit()
    one.tasks.led(broker.replica, PARTITION)
    await one.until_copied()
    log.retention(T0)
    one.tasks.stopped(PARTITION)
    log.epochs.truncate_from_start(log.local_log_start_offset, log.log_end_offset)
    assert log.history.lacks_remote_part
    return one


async def test_f21_epochs_whose_file_was_lost_come_from_the_tier(world: TierWorld) -> None:
    one = await with_lost_epochs(world)
    log = one.broker.log
    one.tasks.led(one.broker.replica, PARTITION)
    await one.until(lambda: not log.history.lacks_remote_part)
    assert log.epochs.entries == [(0, 0), (1, 4), (3, 8)]
    assert log.epochs.dirty, "they are written with the others"
    fill(log, 4, epoch=3, size=50)
    one.broker.commit()
    await one.until_copied()
    await one.tasks.close()
    await world.check(one.broker)


async def test_f21_epochs_are_not_restored_from_two_lineages(world: TierWorld) -> None:
    """F21: two leaders copied the offset before the disk's first, so neither copy is certain."""
    log = make_log(MemoryFiles(), remote_storage_enable=True)
    log.append_as_follower(batch(base_offset=10, epoch=5))
    log.bounds.local_log_start_offset = 10
    cache = SegmentCache(PARTITION)

    def copied(number: int, last: int, epochs: dict[int, int]) -> None:
        cache.apply(cache.next_offset, segment(number, 0, last, epochs))
        cache.apply(cache.next_offset, update(number, SegmentState.COPY_FINISHED))

    assert certain_copy(log, cache) is None
    copied(1, 9, {0: 0, 3: 5})
    assert certain_copy(log, cache) == cache.get(segment_id(1))
    copied(2, 12, {0: 0, 4: 8})
    assert certain_copy(log, cache) is None
    copied(3, 12, {0: 0, 3: 5, 5: 10})
    assert certain_copy(log, cache) == cache.get(segment_id(3))


async def test_f21_producers_whose_snapshots_were_lost_come_from_the_tier(world: TierWorld) -> None:
    """F21, T2: copies of later segments need the producer snapshots."""
    one = await with_tasks(world)
    broker, log = one.broker, one.broker.log
    append(log, batch(size=200, producer=Producer(7, 0, 0)))
    fill(log, 4, size=50)
    broker.commit()
    one.tasks.led(broker.replica, PARTITION)
    await one.until_copied()
    log.retention(T0)
    one.tasks.stopped(PARTITION)
    for offset in list(log.snapshots.offsets):
        log.snapshots.remove(offset)
    log.producers.clear()
    assert log.producer_history.lacks_beginning
    one.tasks.led(broker.replica, PARTITION)
    await one.until(lambda: log.producers.get(7) is not None)
    fill(log, 4, size=50)
    broker.commit()
    await one.until_copied()
    await one.tasks.close()
    await world.check(broker)
