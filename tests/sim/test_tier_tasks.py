"""Tasks of tiered storage in a cluster whose store and leaders fail (S1-S4, S9, F33)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import partial

import pytest

from protocol.batch.records import read_records
from simulation.clients.client import Unknown
from simulation.world.cluster import End, Machine
from storage.log.log import Log
from storage.objects import Weather
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore
from storage.tiered.survey import verify
from storage.tiered.values import RemotePartition
from tests.sim.tier_cluster import TOPIC, TierCluster

pytestmark = pytest.mark.sim

QUICK = {
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "2000",
}
SMALL = {"internal.segment.bytes": "1000", "local.retention.bytes": "0", "retention.ms": "-1"}
STORMY = Weather(
    error=0.1,
    error_after_success=0.1,
    hang=0.02,
    hang_ms=3_000.0,
    lost=0.02,
    latency_ms=(1.0, 50.0),
)


class TieredTopic:
    """The topic, its acknowledged records, and the laws that hold at all times."""

    def __init__(self, world: TierCluster, remote: RemotePartition) -> None:
        self.world = world
        self.remote = remote
        self.acknowledged: dict[int, bytes] = {}
        self._sent = 0

    @classmethod
    async def made(
        cls, world: TierCluster, configs: Mapping[str, str] | None = None
    ) -> TieredTopic:
        return cls(world, await world.create({**SMALL, **(configs or {})}))

    async def send(self, batches: int) -> None:
        """Send batches until acknowledged; a batch with a lost answer is sent again."""
        for _ in range(batches):
            self._sent += 1
            value = f"{self._sent:06d}".encode() * 20
            self.acknowledged[await self.world.asked(partial(self._send, value))] = value

    async def _send(self, value: bytes) -> int:
        client, now_ms = self.world.client, self.world.machines[0].clock.now_ms()
        try:
            return await client.produce(TOPIC, 0, [value], now_ms=now_ms)
        except Unknown:
            client.cluster.cache.forget(TOPIC)  # the leader may be dead
            raise

    def logs(self) -> dict[Machine, Log]:
        found = {one: self.world.replica(one) for one in self.world.machines}
        return {one: held.log for one, held in found.items() if held is not None}

    def cache(self, machine: Machine) -> SegmentCache | None:
        return self.world.tier(machine).journal.leaders_cache(self.remote)

    def leader(self) -> Machine | None:
        """Return the machine that leads in the newest epoch of all known ones."""
        leading = {
            held.leader_epoch: one
            for one in self.world.machines
            if (held := self.world.replica(one)) is not None and held.is_leader
        }
        return leading[max(leading)] if leading else None

    def check(self) -> None:
        """Check the laws that hold at any moment, on every machine that runs."""
        for log in self.logs().values():
            assert log.log_start_offset <= log.local_log_start_offset <= log.high_watermark, "S1"
            assert log.last_stable_offset <= log.high_watermark, "T5"
        leader = self.leader()
        cache = self.cache(leader) if leader is not None else None
        if leader is None or cache is None:
            return
        log = self.logs()[leader]
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        start, local = log.log_start_offset, log.local_log_start_offset
        assert cache.covers(lineage, start, local - 1), "S1: no gap at the seam"
        copied = [one.segment.end_offset for one in cache.shared_with(lineage)]
        committed = max(each.high_watermark for each in self.logs().values())
        assert max(copied, default=-1) < committed, "S2"

    async def settled(self) -> None:
        """Wait until all closed segments are copied and no copy is unfinished; the laws hold all
        the time."""

        def done() -> bool:
            self.check()
            leader = self.leader()
            cache = self.cache(leader) if leader is not None else None
            if leader is None or cache is None:
                return False
            log = self.logs()[leader]
            return (
                not list(cache.unfinished())
                and log.bounds.copied_to >= log.segments.active.base_offset
                and log.local_log_start_offset == log.segments.active.base_offset
            )

        await self.world.until(done)

    async def read_back(self) -> None:
        """S1: assert that every acknowledged record from the log start on is in the tier or on the
        disk."""
        leader = self.leader()
        assert leader is not None
        cache, log = self.cache(leader), self.logs()[leader]
        assert cache is not None
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        store, found = SegmentStore(self.world.bucket), {}
        for segment, offsets in cache.shared_with(lineage):
            data, _ = await store.read_log(segment, 0, segment.size_bytes)
            records = read_records(data)
            found.update({one.offset: one.value for one in records if offsets.first <= one.offset})
        end = log.high_watermark
        for offset in range(log.local_log_start_offset, end):
            data = log.read(offset, 1, max_offset=end)
            found.update({one.offset: one.value for one in read_records(data)})
        for offset, value in self.acknowledged.items():
            if offset >= log.log_start_offset:
                assert found.get(offset) == value, f"S1: {offset}"
        assert await verify(self.world.bucket, cache.segments(), contents=True) == [], "S3"


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.rest) for n in (1, 2))])
def test_segments_go_to_the_tier_while_store_and_leaders_fail(seed: int) -> None:
    async def story(world: TierCluster) -> None:
        topic = await TieredTopic.made(world)
        rng = random.Random(seed)
        world.objects.weather = STORMY
        for turn in range(5):
            await topic.send(20)
            for _ in range(rng.randrange(60)):
                topic.check()
                await asyncio.sleep(0.05)
            victim = rng.choice(world.machines)
            assert victim.life is not None
            victim.end(victim.life, [End.KILL, End.POWER_CUT][turn % 2])
            await topic.send(10)
            await world.boot(victim)
        world.objects.weather = Weather()
        await topic.settled()
        await topic.read_back()
        assert len(topic.acknowledged) == 150

    TierCluster(seed, QUICK).run(story)


def test_s9_a_store_that_is_down_stops_copies_and_local_deletion_alone() -> None:
    async def story(world: TierCluster) -> None:
        topic = await TieredTopic.made(world)
        await topic.send(20)
        await topic.settled()
        world.objects.weather = Weather(down=True)
        before = {one: log.local_log_start_offset for one, log in topic.logs().items()}
        keys = world.bucket.keys
        await topic.send(40)
        await asyncio.sleep(20)
        assert {one: log.local_log_start_offset for one, log in topic.logs().items()} == before
        assert world.bucket.keys == keys
        leader = topic.leader()
        assert leader is not None
        (led,) = world.tier(leader).tasks.leading.values()
        assert led.backlog.copy_segments > 3
        world.objects.weather = Weather()
        await topic.settled()
        assert led.backlog.copy_segments == 0
        await topic.read_back()

    TierCluster(1, QUICK).run(story)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.rest)])
def test_s4_expired_segments_are_deleted_although_leaders_die(seed: int) -> None:
    async def story(world: TierCluster) -> None:
        topic = await TieredTopic.made(world)
        await topic.send(80)
        await topic.settled()
        rng = random.Random(seed)
        world.objects.weather = Weather(error=0.2, latency_ms=(50.0, 400.0))
        await world.asked(lambda: world.client.set_config(TOPIC, "retention.bytes", "3000"))
        for _ in range(3):
            for _ in range(rng.randrange(40)):
                topic.check()
                await asyncio.sleep(0.05)
            victim = topic.leader()
            if victim is not None and victim.life is not None:
                victim.end(victim.life, End.POWER_CUT)
                await world.boot(victim)
        world.objects.weather = Weather()
        await topic.send(5)
        await topic.settled()

        def small() -> bool:
            topic.check()
            leader = topic.leader()
            return leader is not None and topic.logs()[leader].log_start_offset > 40

        await world.until(small)
        await topic.settled()
        await topic.read_back()

    TierCluster(seed, QUICK).run(story)


def test_delete_records_reaches_into_the_tier() -> None:
    async def story(world: TierCluster) -> None:
        topic = await TieredTopic.made(world)
        await topic.send(60)
        await topic.settled()
        before = len(world.bucket.keys)
        assert await world.asked(lambda: world.client.delete_records(TOPIC, 0, 30)) == 30
        await world.until(lambda: len(world.bucket.keys) < before * 0.7)
        await topic.settled()
        await topic.read_back()
        assert {log.log_start_offset for log in topic.logs().values()} == {30}

    TierCluster(1, QUICK).run(story)
