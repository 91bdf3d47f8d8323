"""Foreign clients on a topic of which nine tenths are in the tier alone (KIP-405, KIP-392).

They read it from its leader, from a follower in their rack, from the next leader, and from a broker
that lost its disk.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbox.testing import KafkaCluster, KafkaNode
from testkit.processes.waiting import until
from tests.interop.foreign_programs import run
from tests.interop.whole_topics import READERS, Sender, parsed

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("default")]

TOPIC = "tiered"
PARTITIONS = 2
SEGMENTS = 30
"""Approximate bytes of each partition."""
REPLICAS = (1, 2, 3)
RACKS = ("a", "b", "c")
SIZES = (pytest.param(32 << 20), pytest.param(2 << 30, marks=pytest.mark.soak))
SERIES = "kafka_server_brokertopicmetrics_{}_total"
SENT = SERIES.format("bytesout")
FETCHED = SERIES.format("remotefetchbytes")


class Room:
    """A cluster with the topic, the records sent to it, and the clients that read it."""

    def __init__(self, cluster: KafkaCluster, clients: dict[str, list[str]], size: int) -> None:
        self.cluster = cluster
        self.clients = clients
        self.size = size
        self.wait_s = 60 + size / 10e6
        self.sender = Sender(cluster.bootstrap_servers, TOPIC, PARTITIONS)

    def send(self, size: int) -> None:
        self.sender.send(size)

    def wait_for_tier(self, *nodes: int) -> None:
        """Wait until these brokers have a tenth of it at most."""
        for number in nodes:
            until(
                f"nine tenths left the disk of broker {number}",
                lambda n=number: self._local_bytes(n) <= self.size / 10,  # type: ignore[misc]
                self.wait_s,
            )

    def _local_bytes(self, number: int) -> int:
        total = 0
        for path in list(self.data(number).glob(f"{TOPIC}-*/*.log")):
            with contextlib.suppress(FileNotFoundError):  # The broker deletes copied segments.
                total += path.stat().st_size
        return total

    def data(self, number: int) -> Path:
        return self.cluster.directory / f"node-{number}" / "data"

    def check(self, what: str, served_by: int, rack: str = "") -> None:
        """Check that each client reads everything through one broker alone, from the tier."""
        fetched = self._by_broker(FETCHED)[served_by]
        for name, command in self.clients.items():
            before = self._by_broker(SENT)
            began = time.monotonic()
            arguments = (self.cluster.bootstrap_servers, TOPIC)
            shown = run(*command, *arguments, *self._rest(name, rack), timeout_s=self.wait_s)
            assert parsed(shown.splitlines()) == self.sender.sent, (what, name)
            seconds = time.monotonic() - began
            print(f"{what}: {name}: {self.size / seconds / 1e6:.0f} MB/s, {seconds:.1f} s")
            more = {n: now - before[n] for n, now in self._by_broker(SENT).items()}
            assert more.pop(served_by) >= self.size, (what, name)
            assert sum(more.values()) < self.size / 10, (what, name)
        assert self._by_broker(FETCHED)[served_by] >= fetched + self.size * 0.8

    @staticmethod
    def _rest(name: str, rack: str) -> tuple[str, ...]:
        return (rack,) if name in READERS else ("hashes", rack)

    def _by_broker(self, series: str) -> dict[int, float]:
        """Return the topic's series of each running broker."""
        line = re.compile(rf'^{series}{{topic="{TOPIC}"}} (\S+)$', re.MULTILINE)
        return {
            node.id: float((line.findall(_scrape(node)) or [0])[0])
            for node in self.cluster.brokers
            if node.state == "running"
        }


def _scrape(node: KafkaNode) -> str:
    with urllib.request.urlopen(f"http://{node.facts['http']}/metrics", timeout=30) as reply:
        text: str = reply.read().decode()
        return text


def _command(cluster: KafkaCluster, *arguments: str | Path) -> None:
    run(sys.executable, "-m", "kraftbox", *arguments, cwd=cluster.directory)


@pytest.fixture
def room(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    java_client: list[str],
    franz_go: list[str],
) -> Iterator[Room]:
    size: int = request.param
    python = [sys.executable, "-m", "tests.interop.whole_topics"]
    clients = {name: [*python, name] for name in READERS}
    clients |= {"java": java_client, "franz-go": franz_go}
    configs = {
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": f"file://{tmp_path}/bucket",
        "remote.log.manager.task.interval.ms": 500,
        "log.retention.check.interval.ms": 500,
        "log.segment.delete.delay.ms": 0,
        "broker.session.timeout.ms": 3000,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    tiered = {
        "remote.storage.enable": "true",
        "local.retention.bytes": 1,
        "internal.segment.bytes": size // PARTITIONS // SEGMENTS,
        "min.insync.replicas": 2,
    }
    with KafkaCluster.start(
        tmp_path / "nodes", brokers=3, controllers=1, racks=RACKS, configs=configs
    ) as cluster:
        given = [f"{name}={value}" for name, value in tiered.items()]
        assignment = ",".join([":".join(map(str, REPLICAS))] * PARTITIONS)
        _command(
            cluster,
            *("kafka-topics", "--bootstrap-server", cluster.bootstrap_servers, "--create"),
            *("--topic", TOPIC, "--replica-assignment", assignment),
            *(part for one in given for part in ("--config", one)),
        )
        cluster.wait_until_in_sync()
        yield Room(cluster, clients, size)
    shutil.rmtree(tmp_path / "bucket", ignore_errors=True)


@pytest.mark.parametrize("room", SIZES, indirect=True, ids=lambda size: f"{size >> 20}MiB")
def test_foreign_clients_read_tiered_records_unchanged(room: Room) -> None:
    first, second, third = REPLICAS
    cluster = room.cluster
    room.send(room.size)
    room.wait_for_tier(*REPLICAS)
    room.check("leader", first)
    room.check("follower in the client's rack", third, RACKS[third - 1])
    cluster.node(first).kill()
    for number in range(PARTITIONS):
        assert cluster.leader(TOPIC, number, other_than=first).id == second
    room.send(room.size // 100)
    room.check("next leader", second)
    shutil.rmtree(room.data(first))
    properties = room.data(first).parent / "server.properties"
    _command(cluster, *_FORMAT, cluster.cluster_id, "--config", properties)
    cluster.node(first).start()
    cluster.wait_until_in_sync(room.wait_s)
    _command(
        cluster,
        *("kafka-leader-election", "--bootstrap-server", cluster.bootstrap_servers),
        *("--election-type", "preferred", "--all-topic-partitions"),
    )
    until("the wiped broker leads", lambda: _leaders(cluster) == {first})
    room.send(room.size // 100)
    room.wait_for_tier(first)
    room.check("wiped broker leads", first)


_FORMAT = ("storage", "format", "--cluster-id")


def _leaders(cluster: KafkaCluster) -> set[int]:
    return {one.leader for one in cluster.partitions(TOPIC)}
