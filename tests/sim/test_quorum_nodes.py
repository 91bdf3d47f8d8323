"""Three real quorum nodes (shell, log, requests) in virtual time, with crashes and cuts.

Each node's log is on a disk that drops unflushed data. All records that `append` reported as
committed must be in the image of every node at the end, and the logs must be equal.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from metalog.loader import MetadataLoader
from metalog.quorum.apis import register_quorum_apis
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.log import MetadataLogConfig
from metalog.quorum.node import NotLeader, QuorumNode
from metalog.quorum.snapshots import FIRST_SNAPSHOT, snapshot_parts, write_snapshot
from protocol.metadata import TopicRecord
from protocol.transport.dispatch import HandlerTable
from protocol.transport.server import Server
from runtime.clock import LoopClock
from runtime.tasks import Supervisor
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from storage.files import LossyFiles, MemoryFiles
from testkit.memory.quorum_nodes import Commits

pytestmark = pytest.mark.sim

PORT = 9093
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
TIMING = Timing(
    election_timeout_ms=200,
    fetch_timeout_ms=400,
    election_backoff_max_ms=100,
    request_timeout_ms=300,
)
LIMITS = MetadataLogConfig(
    segment_bytes=2000, max_bytes_between_snapshots=1500, retention_bytes=4000
)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


def endpoints(node_id: int) -> tuple[tuple[str, VoterEndpoint], ...]:
    return (("CONTROLLER", VoterEndpoint(f"c{node_id}", PORT)),)


class Host:
    """One machine: its disk, and the node that runs on it or does not."""

    def __init__(self, world: Cluster, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.name = f"c{node_id}"
        self.disk = MemoryFiles()
        self.node: QuorumNode | None = None

    async def start(self) -> None:
        """Start the node; tasks created here belong to this host in the network."""
        world = self.world
        self.files = LossyFiles(self.disk)
        self.supervisor = Supervisor(lambda name, error: world.failures.append((name, error)))
        clock = LoopClock(world.loop, 1_700_000_000_000)
        config = QuorumConfig(
            node=key(self.id),
            cluster_id=CLUSTER_ID,
            log_dir="/data",
            voters=world.static_voters,
            addresses=Addresses(
                endpoints(self.id),
                bootstrap_servers=tuple(VoterEndpoint(f"c{i}", PORT) for i in world.ids),
            ),
            timing=TIMING,
            log=LIMITS,
            fetch_wait_ms_max=100,
        )
        rng = random.Random(world.rng.random())
        node = QuorumNode(
            config, files=self.files, clock=clock, rng=rng, supervisor=self.supervisor
        )
        self.loader = MetadataLoader(node, self.supervisor)
        self.commits = Commits(self.loader)
        table = HandlerTable()
        table.serve_api_versions()
        register_quorum_apis(table, node)
        self.server = Server(table, clock=clock, listener="CONTROLLER", supervisor=self.supervisor)

        async def begin() -> None:
            CURRENT_HOST.set(self.name)
            await node.start()
            await self.server.start(self.name, PORT)

        await asyncio.create_task(begin())
        self.node = node

    async def crash(self) -> None:
        """Cut the power: unflushed data may be lost."""
        node, self.node = self.node, None
        if node is None:
            return
        self.files.crash(self.world.rng if self.world.rng.random() < 0.5 else None)
        self.world.loop.network.crash_host(self.name)
        await node.abort()
        await self.supervisor.close()

    async def stop(self) -> None:
        node, self.node = self.node, None
        if node is not None:
            await self.server.close(grace_ms=0)
            await node.stop()
            await self.supervisor.close()


class Cluster:
    def __init__(self, seed: int, *, dynamic: bool, observers: int = 0) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop(Network(random.Random(seed + 1)))
        self.ids = (1, 2, 3)
        self.hosts = {i: Host(self, i) for i in range(1, 4 + observers)}
        self.failures: list[tuple[str, BaseException]] = []
        self.created: list[str] = []
        self.asked = 0
        voters = VoterSet(Voter(key(i), endpoints(i), 0, 1) for i in self.ids)
        self.static_voters = VoterSet() if dynamic else voters
        if dynamic:
            for host in self.hosts.values():
                self.format(host, voters)

    @staticmethod
    def format(host: Host, voters: VoterSet) -> None:
        folder = "/data/__cluster_metadata-0"
        host.disk.mkdirs(folder)
        parts = snapshot_parts(
            FIRST_SNAPSHOT,
            (),
            last_contained_timestamp_ms=0,
            timestamp_ms=0,
            voters=voters,
            kraft_version=1,
        )
        write_snapshot(host.disk, f"{folder}/{0:020d}-{0:010d}.checkpoint", parts)

    def run(self, scenario: Callable[[Cluster], object]) -> None:
        async def main() -> None:
            for host in self.hosts.values():
                await host.start()
            writer = asyncio.create_task(self.write())
            await scenario(self)  # type: ignore[misc]
            writer.cancel()
            await self.settle()
            for host in self.hosts.values():
                await host.stop()

        self.loop.run_world(main())
        self.loop.close()

    def leader(self) -> Host | None:
        leaders = [h for h in self.hosts.values() if h.node is not None and h.node.is_leader]
        return max(leaders, key=lambda h: h.node.leader()[1] if h.node else -1, default=None)

    async def write(self) -> None:
        """Create topics without end; remember those that were committed."""
        while True:
            await asyncio.sleep(0.02)
            await self.create_topic()

    async def create_topic(self) -> str | None:
        host = self.leader()
        if host is None or host.node is None:
            return None
        self.asked += 1
        name = f"t{self.asked}"
        record = TopicRecord(name=name, topic_id=self.asked.to_bytes(16, "big"))
        try:
            offset = host.node.append(host.node.leader()[1], [record])
            await asyncio.wait_for(host.commits.wait_for(offset), 2)
        except (NotLeader, TimeoutError, OSError):
            return None
        # Another leader's record may be at that offset now.
        if name not in host.loader.image.topics.by_name:
            return None
        self.created.append(name)
        return name

    async def settle(self) -> None:
        """End all faults: every node must get everything that was created."""
        network = self.loop.network
        for a in self.hosts.values():
            for b in self.hosts.values():
                network.link(a.name, b.name).cut = False
        for host in self.hosts.values():
            if host.node is None:
                await host.start()
        last = None
        for _ in range(200):
            last = await self.create_topic()
            if last is not None:
                break
            await asyncio.sleep(0.1)
        assert last is not None, "no topic could be created after the faults"
        for _ in range(200):
            if all(last in h.loader.image.topics.by_name for h in self.hosts.values()):
                break
            await asyncio.sleep(0.1)
        assert not self.failures, self.failures
        images = [h.loader.image for h in self.hosts.values()]
        for image in images:
            assert set(self.created) <= set(image.topics.by_name)
            assert image.topics == images[0].topics
        self.compare_logs()

    def compare_logs(self) -> None:
        """Assert that logs are equal byte for byte from the highest start to the lowest end."""
        logs = [h.node.log for h in self.hosts.values() if h.node is not None]
        start = max(log.start_offset for log in logs)
        marks = [h.node.high_watermark or 0 for h in self.hosts.values() if h.node]
        end = min(marks)
        parts = {b"".join(_whole(log, start, end)) for log in logs}
        assert len(parts) == 1


def _whole(log: object, start: int, end: int) -> list[bytes]:
    from metalog.quorum.log import MetadataLog
    from protocol.batch.header import iter_batches

    assert isinstance(log, MetadataLog)
    found: list[bytes] = []
    offset = start
    while offset < end:
        data = log.read(offset, 1 << 20)
        for header, at in iter_batches(data):
            if header.next_offset > end:
                return found
            found.append(data[at : at + header.size_bytes])
            offset = header.next_offset
    return found


async def calm(cluster: Cluster) -> None:
    await asyncio.sleep(3)
    assert len(cluster.created) > 20


async def crashes(cluster: Cluster) -> None:
    for _ in range(6):
        await asyncio.sleep(cluster.rng.uniform(0.1, 2))
        victim = cluster.rng.choice(list(cluster.hosts.values()))
        await victim.crash()
        await asyncio.sleep(cluster.rng.uniform(0.1, 2))
        if victim.node is None:
            await victim.start()


async def leader_crashes(cluster: Cluster) -> None:
    for _ in range(5):
        await asyncio.sleep(1.5)
        leader = cluster.leader()
        if leader is not None:
            await leader.crash()
            await asyncio.sleep(cluster.rng.uniform(0.0, 2))
            await leader.start()


async def everyone_crashes(cluster: Cluster) -> None:
    for _ in range(3):
        await asyncio.sleep(1.5)
        for host in cluster.hosts.values():
            await host.crash()
        for host in cluster.hosts.values():
            await host.start()


async def cuts(cluster: Cluster) -> None:
    network = cluster.loop.network
    names = [h.name for h in cluster.hosts.values()]
    for _ in range(6):
        for a in names:
            for b in names:
                network.link(a, b).cut = a != b and cluster.rng.random() < 0.35
        await asyncio.sleep(cluster.rng.uniform(0.3, 2.5))


async def graceful_stops(cluster: Cluster) -> None:
    for host in cluster.hosts.values():
        await asyncio.sleep(1)
        await host.stop()
        await asyncio.sleep(1)
        await host.start()


async def a_long_absence(cluster: Cluster) -> None:
    """Be away long enough for the log to begin with a snapshot that the node lacks."""
    absent = cluster.hosts[3]
    await asyncio.sleep(1)
    await absent.crash()
    await asyncio.sleep(8)
    for host in cluster.hosts.values():
        if host.node is not None:
            with contextlib.suppress(IndexError):
                host.node.log.clean(1 << 50)
    await absent.start()
    await asyncio.sleep(3)
    assert absent.node is not None and absent.node.log.start_offset > 0


Scenario: TypeAlias = Callable[[Cluster], Coroutine[Any, Any, None]]
SCENARIOS: list[Scenario] = [
    calm,
    crashes,
    leader_crashes,
    everyone_crashes,
    cuts,
    graceful_stops,
    a_long_absence,
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_three_voters(scenario: Scenario, dynamic: bool) -> None:
    Cluster(SCENARIOS.index(scenario), dynamic=dynamic).run(scenario)


@pytest.mark.parametrize("seed", range(100, 106))
def test_three_voters_and_an_observer_under_crashes(seed: int) -> None:
    Cluster(seed, dynamic=seed % 2 == 0, observers=1).run(crashes)


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_moved_voter_registers_its_endpoint_with_the_quorum(moved: int) -> None:
    """UpdateRaftVoter: the voter's entry in the log has an address without a listener."""
    cluster = Cluster(moved, dynamic=True)
    old = (("CONTROLLER", VoterEndpoint("elsewhere", PORT)),)
    voters = VoterSet(Voter(key(i), old if i == moved else endpoints(i), 0, 1) for i in cluster.ids)
    for host in cluster.hosts.values():
        cluster.format(host, voters)

    async def wait(cluster: Cluster) -> None:
        await asyncio.sleep(6)
        for host in cluster.hosts.values():
            assert host.node is not None
            entry = host.node.voters.get(moved)
            assert entry is not None and entry.endpoints == endpoints(moved)

    cluster.run(wait)


def test_unresolvable_peer_is_retried_indefinitely() -> None:
    """One voter's name is unknown for a minute; with two of three voters the quorum works."""
    cluster = Cluster(11, dynamic=False)
    cluster.hosts[3].name = "not-yet-known"

    async def wait(cluster: Cluster) -> None:
        await asyncio.sleep(60)
        assert len(cluster.created) > 20
        host = cluster.hosts[3]
        await host.stop()
        host.name = "c3"
        await host.start()

    cluster.run(wait)


def test_equal_seeds_give_equal_histories() -> None:
    histories = []
    for _ in range(2):
        cluster = Cluster(42, dynamic=True)
        cluster.run(crashes)
        histories.append((cluster.created, cluster.asked))
    assert histories[0] == histories[1]
