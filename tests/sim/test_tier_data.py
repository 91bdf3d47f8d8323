"""Tiered topics with data: copies leave the disks, and stay readable for all brokers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from protocol.errors import ApiError
from simulation.clients.client import Unknown
from simulation.world.cluster import End, Machine
from storage.objects import Weather
from storage.tiered.layout import partition_folder
from storage.tiered.values import RemotePartition
from tests.sim.tier_cluster import NODES, TOPIC, TierCluster

pytestmark = pytest.mark.sim

SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
}
SMALL = {"internal.segment.bytes": "1000", "local.retention.bytes": "1"}
RECORDS = 40


async def filled(world: TierCluster) -> dict[int, bytes]:
    """Fill a topic whose beginning is on no disk any more. Returns: its acknowledged records."""
    await world.create(SMALL)
    sent = await world.produce(RECORDS)

    def small(machine: Machine) -> bool:
        log = world.log(machine)
        return log is not None and log.local_log_start_offset > RECORDS // 2

    await world.until(lambda: all(small(machine) for machine in world.machines))
    return sent


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_with_an_empty_disk_begins_behind_the_tier(seed: int) -> None:
    async def story(world: TierCluster) -> None:
        await filled(world)
        leader = await world.leader()
        victim = next(one for one in world.machines if one is not leader)
        assert victim.life is not None
        victim.end(victim.life, End.KILL)
        victim.swap_disk(None)
        await world.boot(victim)
        partition = world.replica(leader)
        assert partition is not None
        await world.until(lambda: len(partition.isr) == NODES)
        own, leaders = world.log(victim), partition.log
        assert own is not None
        assert own.log_start_offset == leaders.log_start_offset == 0
        assert own.local_log_start_offset > 0
        assert own.epochs.entries == leaders.epochs.entries

    TierCluster(seed, SETTINGS).run(story)


@pytest.mark.parametrize("seed", range(2))
def test_next_coordinator_returns_every_acknowledged_commit(seed: int) -> None:
    """S1: the records are equal byte for byte, though no disk has them, one leader after the
    other."""

    async def story(world: TierCluster) -> None:
        sent = await filled(world)
        for end in (End.KILL, End.POWER_CUT, End.KILL):
            assert await world.read(len(sent)) == sent
            leader = await world.leader()
            assert leader.life is not None
            leader.end(leader.life, end)
            sent |= await world.produce(5)
            await world.boot(leader)

    TierCluster(seed, SETTINGS).run(story)


def test_leaders_and_followers_give_all_though_the_store_is_late_and_wrong() -> None:
    """S1, F33, KIP-392: the store often answers later than a fetch waits."""

    async def story(world: TierCluster) -> None:
        sent = await filled(world)
        world.objects.weather = Weather(error=0.2, flipped=0.1, short=0.1, latency_ms=(20.0, 900.0))
        for machine in world.machines:
            found: dict[int, bytes] = {}
            async with asyncio.timeout(300):
                while len(found) < len(sent):
                    with contextlib.suppress(Unknown, ApiError):
                        found |= await world.fetched(machine, max(found, default=-1) + 1)
            assert found == sent

    TierCluster(1, SETTINGS).run(story)


def test_a_store_that_hangs_holds_no_producer_up_and_takes_nothing() -> None:
    """S9, F33: only records in the tier leave a disk."""

    async def story(world: TierCluster) -> None:
        sent = await filled(world)
        log = world.log(await world.leader())
        assert log is not None
        world.objects.weather = Weather(hang=1.0, hang_ms=2_000.0)
        await asyncio.sleep(5)
        local, began_s = log.local_log_start_offset, world.loop.time()
        sent |= await world.produce(RECORDS)
        assert world.loop.time() - began_s < 10
        await asyncio.sleep(20)
        assert log.local_log_start_offset == local
        world.objects.weather = Weather()
        assert await world.read(len(sent)) == sent
        await world.until(lambda: log.local_log_start_offset > local)

    TierCluster(1, SETTINGS).run(story)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_deleted_in_mid_copy_leaves_nothing_and_its_namesake_keeps_its_own(
    seed: int,
) -> None:
    """S10: objects are removed by topic id, so the re-created topic keeps its own objects."""

    async def story(world: TierCluster) -> None:
        world.objects.weather = Weather(latency_ms=(5.0, 300.0), error=0.1)
        old = await world.create(SMALL)
        await world.produce(RECORDS)
        await world.until(lambda: len(world.bucket.keys) > 3)
        await asyncio.sleep(world.chance.uniform(0, 3))
        await world.asked(lambda: world.client.delete_topic(TOPIC))
        if seed % 2:
            leader = world.chance.choice(world.machines)
            assert leader.life is not None
            leader.end(leader.life, End.KILL)
            await world.boot(leader)
        new = await world.create(SMALL)
        sent = await world.produce(RECORDS)
        await world.until(lambda: not objects_of(world, old))
        world.objects.weather = Weather()
        await asyncio.sleep(10)
        assert not objects_of(world, old)
        assert objects_of(world, new)
        assert await world.read(len(sent)) == sent

    TierCluster(seed, SETTINGS).run(story)


def objects_of(world: TierCluster, remote: RemotePartition) -> list[str]:
    return [key for key in world.bucket.keys if key.startswith(partition_folder(remote))]
