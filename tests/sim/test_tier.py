"""Tiered storage of a cluster: its metadata topic, and deleted topics (S6, S10)."""

from __future__ import annotations

import pytest

from simulation.world.cluster import End, Machine
from storage.objects import Weather
from storage.tiered.cache import APPLIED
from storage.tiered.layout import keys_to_delete
from storage.tiered.states import SegmentState
from storage.tiered.values import RemotePartition, SegmentUpdate
from testkit.records.tier import segment
from tests.sim.tier_cluster import TierCluster

pytestmark = pytest.mark.sim


async def write_segment(
    world: TierCluster, leader: Machine, remote: RemotePartition, number: int
) -> None:
    """Write a finished copy of ten offsets as its leader would.

    Its epoch is still to come, so that no leader deletes it as that of a lost lineage.
    """
    journal = world.tier(leader).journal
    epochs = {1000: number * 10}
    one = segment(number, number * 10, number * 10 + 9, epochs, partition=remote)
    assert await world.inside(leader, journal.write(one)) == APPLIED
    for key in keys_to_delete(one):
        await world.bucket.put(key, b"data")
    finished = SegmentUpdate(
        partition=remote,
        segment_id=one.segment_id,
        broker_id=leader.node_id,
        event_timestamp_ms=world.machines[0].clock.now_ms(),
        state=SegmentState.COPY_FINISHED,
    )
    assert await world.inside(leader, journal.write(finished)) == APPLIED


def finished(world: TierCluster, machine: Machine, remote: RemotePartition) -> int:
    """Return the number of copies that a machine knows; -1 while its cache is not ready."""
    if machine.life is None or not machine.life.alive:
        return -1
    cache = world.tier(machine).journal.cache(remote)
    return -1 if cache is None else len(list(cache.finished()))


async def all_know(
    world: TierCluster, remote: RemotePartition, count: int, *machines: Machine
) -> None:
    """Wait until all these machines are ready and know `count` copies."""
    await world.until(lambda: all(finished(world, one, remote) == count for one in machines))


@pytest.mark.parametrize("seed", range(3))
def test_leaders_and_followers_know_the_same_through_crashes(seed: int) -> None:
    async def story(world: TierCluster) -> None:
        remote = await world.create()
        for number in range(4):
            leader = await world.leader()
            await all_know(world, remote, number, leader)
            await write_segment(world, leader, remote, number)
            await all_know(world, remote, number + 1, *world.machines)
            assert leader.life is not None
            leader.end(leader.life, [End.KILL, End.POWER_CUT][number % 2])
            await all_know(world, remote, number + 1, await world.leader())
            await world.boot(leader)

    TierCluster(seed).run(story)


@pytest.mark.parametrize("seed", range(2))
def test_a_deleted_topics_objects_go_though_all_brokers_restart(seed: int) -> None:
    async def story(world: TierCluster) -> None:
        remote = await world.create()
        leader = await world.leader()
        await write_segment(world, leader, remote, 1)
        await world.asked(lambda: world.client.delete_topic("t"))
        for machine in world.machines:
            assert machine.life is not None
            machine.end(machine.life, End.KILL)
        assert world.bucket.keys != []
        await world.boot(*world.machines)
        await world.until(lambda: world.bucket.keys == [])
        await world.until(lambda: not any("-stray" in name for name in folders(world)))

    TierCluster(seed).run(story)


def test_a_deleted_topics_objects_and_folders_go() -> None:
    async def story(world: TierCluster) -> None:
        remote = await world.create()
        await write_segment(world, await world.leader(), remote, 1)
        await world.asked(lambda: world.client.delete_topic("t"))
        await world.until(lambda: world.bucket.keys == [])
        await world.until(lambda: not any(name.startswith("t-") for name in folders(world)))

    TierCluster(1).run(story)


def test_a_namesake_keeps_its_objects_and_a_broker_that_was_away_sees_to_the_old_ones() -> None:
    async def story(world: TierCluster) -> None:
        remote = await world.create()
        leader = await world.leader()
        await write_segment(world, leader, remote, 1)
        others = [one for one in world.machines if one is not leader]
        away = others[-1]  # the client sends its requests to the first one
        assert away.life is not None
        away.end(away.life, End.KILL)
        world.objects.weather = Weather(down=True)
        await world.asked(lambda: world.client.delete_topic("t"))
        new = await world.create()
        await world.boot(away)
        world.objects.weather = Weather()
        leader = await world.leader()
        await all_know(world, new, 0, leader)
        await write_segment(world, leader, new, 2)
        kept = sorted(keys_to_delete(segment(2, 20, 29, {1000: 20}, partition=new)))
        await world.until(lambda: world.bucket.keys == kept)

    TierCluster(1).run(story)


def folders(world: TierCluster) -> list[str]:
    return [name for machine in world.machines for name in machine.disk.listdir("/data")]
