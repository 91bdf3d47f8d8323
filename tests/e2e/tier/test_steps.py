"""Leaders that fail or are replaced at each step of a copy and a removal, on real processes (F33).

A proxy between the brokers and their store holds one request before it reaches the store, or its
answer. Then the leader is killed, or another one is elected, and the request continues. Clients
write and read under a ledger all the time. In the end no acknowledged record is lost (H1-H12, S1),
and the store has exactly the objects of finished segments (S3, S6). tests/sim/test_tier_tasks.py
does the same between the requests, at the records of the metadata topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from storage.tiered.layout import Kind
from testkit.processes import waiting
from testkit.processes.object_servers import Servers
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.store_proxy import Point, StoreProxy
from tests.e2e.tier.ledgered import LedgeredTopic, until
from tests.e2e.tier.node import store_of, tier_settings, until_clean

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

TOPIC = "steps"


class Loss(Enum):
    """A way to end a leadership."""

    KILLED = "killed"
    REPLACED = "replaced"


class Step(NamedTuple):
    """A request, and the event at it."""

    point: Point
    loss: Loss

    def __str__(self) -> str:
        return f"{self.loss.value} {self.point}"


PUT, DELETE = "PUT", "POST"
COPIED = [kind.value for kind in Kind if kind is not Kind.TXN_INDEX]
REMOVED = [Kind.MANIFEST.value, Kind.LOG.value]
"""The first object named by the two requests that remove a segment."""
ALL_POINTS = [
    Point(method, kind, answered)
    for method, kinds in ((PUT, COPIED), (DELETE, REMOVED))
    for kind in kinds
    for answered in (False, True)
]
SOME = [
    Step(Point(PUT, "manifest", answered=True), Loss.KILLED),
    Step(Point(PUT, "log", answered=True), Loss.REPLACED),
    Step(Point(DELETE, "manifest", answered=True), Loss.KILLED),
    Step(Point(PUT, "manifest", answered=False), Loss.REPLACED),
]


class Story:
    """The topic at two brokers."""

    def __init__(self, cluster: ProcessCluster, proxy: StoreProxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.topic = LedgeredTopic(cluster.bootstrap, TOPIC, replicas=2)
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def state(self) -> tuple[int, int]:
        """Return leader and size of the ISR; without a reachable broker there is no leader."""
        try:
            found = self.admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        except KafkaException:
            return -1, 0
        return (found[0].leader, len(found[0].isrs)) if found else (-1, 0)

    async def reaches(self, what: str, look: Callable[[tuple[int, int]], bool]) -> int:
        """Wait until leader and ISR match, while the clients run. Returns: the leader."""

        def seen() -> tuple[int, int] | None:
            state = self.state()
            return state if state[0] > 0 and look(state) else None

        return (await asyncio.to_thread(waiting.until, what, seen, every_s=0.1))[0]

    def local_start(self, node: NodeProcess) -> int:
        return min((int(p.stem) for p in (node.data / f"{TOPIC}-0").glob("*.log")), default=0)

    async def go(self, steps: list[Step]) -> None:
        await self.topic.workload.prepare()
        self.topic.workload.start()
        for step in steps:
            print(f"\nthe leader is {step}", flush=True)
            await self.undergo(step)
        await self.topic.workload.stop()
        place = ("-b", self.cluster.bootstrap, "--properties", str(self.cluster.brokers[0].config))
        await asyncio.to_thread(until_clean, place)
        await self.topic.read_back()
        self.topic.judged()

    async def undergo(self, step: Step) -> None:
        leader = self.cluster.nodes[await self.reaches("both in sync", lambda state: state[1] == 2)]
        (other,) = (one for one in self.cluster.brokers if one is not leader)
        if step.point.method == DELETE:
            await until(
                lambda: f"more of it is in the tier than {self.local_start(leader)}",
                lambda: self.local_start(leader) > self.topic.log_start,
            )
        held = self.proxy.hold(step.point, self.topic.topic_id)
        if step.point.method == DELETE:
            await asyncio.to_thread(self.topic.delete_records, self.local_start(leader))
        await asyncio.to_thread(self.proxy.wait_until_held, held)
        if step.loss is Loss.KILLED:
            leader.kill()
            self.proxy.release(held)
            await self.reaches("the other leads", lambda state: state[0] == other.id)
            leader.start()
        else:
            await self.replace(leader, other)
            self.proxy.release(held)

    async def replace(self, leader: NodeProcess, other: NodeProcess) -> None:
        async with await ClusterClient.connect(self.cluster.bootstrap) as client:
            admin, partition = Admin(client), (TOPIC, 0)
            await admin.reassign(partition, [other.id, leader.id])
            await admin.elect_leaders(ElectionType.PREFERRED, [partition])
        await self.reaches("the other leads", lambda state: state[0] == other.id)


@pytest.fixture
def story(tmp_path: Path, servers: Servers) -> Iterator[Story]:
    store = store_of(servers, "versitygw")
    with StoreProxy(store["endpoint"]) as proxy:
        settings = {
            **tier_settings({**store, "endpoint": proxy.endpoint}, replicas=2, min_isr=1),
            "kraftbox.broker.connection.loss.fence.ms": "200",
        }
        with ProcessCluster(tmp_path, controllers=1, brokers=2, settings=settings) as cluster:
            cluster.start()
            yield Story(cluster, proxy)


def play(story: Story, steps: list[Step]) -> None:
    async def run() -> None:
        try:
            await story.go(steps)
        finally:
            await story.topic.workload.close()

    asyncio.run(run())


def test_leaders_are_lost_at_steps_of_copies_and_removals(story: Story) -> None:
    play(story, SOME)


@pytest.mark.soak
@pytest.mark.parametrize("loss", Loss)
def test_leaders_are_lost_at_each_step(story: Story, loss: Loss) -> None:
    play(story, [Step(point, loss) for point in ALL_POINTS])
