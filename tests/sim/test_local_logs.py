"""Local logs on their way through a simulated cluster (KIP-1303)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from broker.fetch import follower
from broker.replication.partition.effects import Effects
from broker.replication.partition.local_log_reports import follower_stated, has_enough_locally
from broker.replication.partition.partition import Partition
from protocol.api_keys import ApiKey
from protocol.transport.client import Connection
from simulation.world.cluster import End, Machine
from tests.sim.tier_cluster import NODES, TOPIC, TierCluster

pytestmark = pytest.mark.sim

BYTES = "leader.election.eligible.local.log.bytes"
THRESHOLD = 2_500
SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "kraftbox.local.log.report.interval.ms": "3000",
}
FETCHER = re.compile(r"broker-\d+-fetcher-\d+-of-leader-\d+")
OWN = {(ApiKey.FETCH, 19), (ApiKey.ALTER_PARTITION, 4)}


class Sent:
    """Every request in the cluster: sender, API and version."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: set[tuple[str | None, ApiKey, int]] = set()
        write = Connection._write

        def noting(connection: Connection, message: Any, way: Any) -> int:
            self.requests.add((connection.client_id, way.api, way.version))
            return write(connection, message, way)

        monkeypatch.setattr(Connection, "_write", noting)

    @property
    def own(self) -> set[tuple[ApiKey, int]]:
        return {(api, version) for _, api, version in self.requests} & OWN


def reports(world: TierCluster) -> int:
    """Return the number of local-log reports sent by running brokers."""
    sent = 0
    for machine in world.machines:
        life = machine.life
        if life is not None and life.node is not None and life.node.broker is not None:
            replication = life.node.broker.replication
            sent += 0 if replication is None else replication.isr_changes.reports.sent
    return sent


def all_in_sync(world: TierCluster, leader: Machine) -> bool:
    partition = world.replica(leader)
    return partition is not None and len(partition.isr) == NODES and partition.proposal is None


def test_the_versions_go_between_our_brokers_alone_and_only_while_a_threshold_is_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = Sent(monkeypatch)

    async def story(world: TierCluster) -> None:
        await world.create()
        await world.produce(10)
        assert not sent.own and reports(world) == 0
        leader = await world.leader()
        partition = world.replica(leader)
        assert partition is not None
        epoch, fenced = partition.leader_epoch, partition.counters.failed_isr_updates
        await world.asked(lambda: world.client.set_config(TOPIC, BYTES, str(THRESHOLD)))
        await world.until(lambda: partition.local_logs is not None)
        await world.produce(30)
        await world.until(lambda: all(r.local_bytes > 0 for r in partition.remote.values()))
        await world.until(lambda: reports(world) > 0 and sent.own == OWN)
        assert all_in_sync(world, leader)
        assert (partition.leader_epoch, partition.counters.failed_isr_updates) == (epoch, fenced)
        fetched = {who for who, api, version in sent.requests if (api, version) == (1, 19)}
        assert fetched and all(who is not None and FETCHER.fullmatch(who) for who in fetched)
        others = {v for who, api, v in sent.requests if api == ApiKey.FETCH and who not in fetched}
        assert others and max(others) <= 18, "consumers, the quorum, the tier's metadata"
        # Off again: as before.
        await world.asked(lambda: world.client.set_config(TOPIC, BYTES, "-1"))
        await world.until(
            lambda: all(
                (replica := world.replica(one)) is not None and replica.local_logs is None
                for one in world.machines
            )
        )
        await asyncio.sleep(5)
        sent.requests.clear()
        told = reports(world)
        await world.produce(20)
        await asyncio.sleep(10)
        assert not sent.own and reports(world) == told
        assert all_in_sync(world, leader)

    TierCluster(1, SETTINGS).run(story)


@pytest.mark.parametrize("seed", range(2))
def test_broker_with_an_empty_disk_has_unknown_stats_first(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: the leader does not mistake it for the full replica that it was, and it fills up."""
    stated: dict[int, list[int]] = {}
    take_down = follower_stated

    def noting(partition: Partition, replica_id: int, **said: Any) -> Effects:
        if partition.topic == TOPIC:
            stated.setdefault(said["broker_epoch"], []).append(said["local_bytes"])
        return take_down(partition, replica_id, **said)

    monkeypatch.setattr(follower, "follower_stated", noting)

    async def story(world: TierCluster) -> None:
        await world.create({"internal.segment.bytes": "1000", BYTES: str(THRESHOLD)})
        await world.produce(60)
        leader = await world.leader()
        partition = world.replica(leader)
        assert partition is not None
        victim = next(one for one in world.machines if one is not leader)
        number = victim.node_id
        await world.until(lambda: partition.remote[number].local_bytes > THRESHOLD)
        earlier = set(stated)
        assert victim.life is not None
        victim.end(victim.life, End.KILL)
        victim.swap_disk(None)
        await world.boot(victim)
        await world.until(lambda: all_in_sync(world, leader))
        await world.until(lambda: has_enough_locally(partition, number, victim.clock.now_ms()))
        (epoch,) = [one for one in stated if one not in earlier]
        assert partition.remote[number].broker_epoch == epoch
        assert stated[epoch][-1] == partition.remote[number].local_bytes > THRESHOLD
        logs = partition.local_logs
        assert logs is not None and logs._told[number].broker_epoch == epoch

    TierCluster(seed, SETTINGS).run(story)


@pytest.mark.parametrize("seed", range(2))
def test_reported_stats_are_in_the_metadata_and_an_idle_partition_stops_reporting(
    seed: int,
) -> None:
    async def story(world: TierCluster) -> None:
        await world.create({BYTES: str(THRESHOLD)})
        await world.produce(30)
        leader = await world.leader()
        partition = world.replica(leader)
        assert partition is not None

        def known() -> dict[int, int]:
            logs = partition.local_logs
            told = () if logs is None else logs.known.entries
            return {one.broker_id: one.stats.size_bytes for one in told}

        size = partition.log.size_bytes
        await world.until(lambda: known() == dict.fromkeys(partition.replicas, size))
        epoch, told = partition.partition_epoch, reports(world)
        assert told < 30, "each append would be a report"
        await asyncio.sleep(12)
        assert (partition.partition_epoch, reports(world)) == (epoch, told)

    TierCluster(seed, SETTINGS).run(story)
