"""Directories that Kafka 4.4.0 formatted, with Kraftbox and 4.4.0 on them many times in turn.

Every kind of formatting, levels 30 to 33, with and without eligible leader replicas, with a SCRAM
credential. Kraftbox is killed before it commits anything, then both servers start in turn. Levels,
credentials, topics and records stay (KIP-1170).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from metalog.quorum.batches import read_batches
from testkit.kafka.in_place import KafkaInPlace
from testkit.kafka.jars import kafka_libs
from testkit.kafka.twins import (
    CLUSTER_ID,
    COMMON_FEATURES,
    KraftboxServer,
    NodeDirectory,
    kafka_at,
)
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

SCRAM = ["--add-scram", "SCRAM-SHA-256=[name=alice,iterations=4096,password=secret]"]
WAYS = ("static", "standalone", "initial controllers")
KILLS = 3
"""Starts that end before the first commit."""
TURNS = 10
WAIT_S = 90.0
ELR = "eligible.leader.replicas.version"
LONG = pytest.mark.soak


class Levels(NamedTuple):
    metadata: int
    elr: int

    def options(self) -> list[str]:
        given = ["--feature", f"metadata.version={self.metadata}", "--feature", f"{ELR}={self.elr}"]
        return [*given, *COMMON_FEATURES]


LEVELS = [Levels(metadata, elr) for metadata in (30, 31, 32, 33) for elr in (0, 1)]


def image_of(metadata_dir: Path) -> MetadataImage:
    """Return the image of a metadata log that still has its first segment."""
    data = b"".join(path.read_bytes() for path in sorted(metadata_dir.glob("*.log")))
    return replay_all(EMPTY_IMAGE, [r for batch in read_batches(data) for r in batch.records])


def check_image(metadata_dir: Path, levels: Levels) -> None:
    """Check that levels and credentials are those of the formatting, and nothing else."""
    image = image_of(metadata_dir)
    features = {name: level for name, level in image.features.items() if level}
    features.pop("kraft.version", None)
    wanted = {"metadata.version": levels.metadata, ELR: levels.elr}
    assert features == {name: level for name, level in wanted.items() if level}
    assert list(image.scram) == [(1, "alice")]


class World:
    """Topics and records of a cluster, one of each for every server that ran."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        self.client: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.replicas = replicas
        self.values: dict[str, list[bytes]] = {}

    def add(self, name: str) -> None:
        """Create a topic, and append a record to every topic."""
        admin = AdminClient(self.client)
        created = admin.create_topics([NewTopic(name, 1, self.replicas)])
        created[name].result(WAIT_S)
        self.values[name] = []
        producer = Producer({**self.client, "acks": "all"})
        for topic, values in self.values.items():
            value = f"{name} {len(values)}".encode()
            producer.produce(topic, value, partition=0)
            values.append(value)
        assert producer.flush(WAIT_S) == 0

    def check(self) -> None:
        """Read every topic: each record is there once, in order."""
        consumer = Consumer({**self.client, "group.id": "none", "enable.auto.commit": False})
        try:
            for topic, values in self.values.items():
                consumer.assign([TopicPartition(topic, 0, 0)])
                found: list[bytes] = []
                while len(found) < len(values):
                    messages = consumer.consume(len(values) - len(found), WAIT_S)
                    assert messages, f"{topic}: {len(found)} of {len(values)} records"
                    for message in messages:
                        assert message.error() is None, message.error()
                        found.append(message.value())
                assert found == values
        finally:
            consumer.close()


# --- one node -------------------------------------------------------------------------------------


def formatted(folder: Path, way: str, levels: Levels) -> NodeDirectory:
    """Return a directory that Kafka's tool formatted in this way."""
    place = NodeDirectory(folder, {"log.cleaner.dedupe.buffer.size": "4194304"})
    options = {"static": [], "standalone": ["--standalone"]}.get(way)
    if way == "static":
        del place.settings["controller.quorum.bootstrap.servers"]
        place.settings["controller.quorum.voters"] = f"1@{place.controller}"
    elif options is None:
        voter = f"1@{place.controller}:AAAAAAAAAAAAAAAAAAAACQ"
        options = ["--initial-controllers", voter]
    assert options is not None
    kafka_at(place).format(CLUSTER_ID, *options, *levels.options(), *SCRAM)
    assert not (place.data / "bootstrap.checkpoint").exists()
    return place


def kill_before_a_commit(start: Any, kill: Any, metadata_dir: Path) -> None:
    """Kill a controller as soon as its log has a byte more than before: nothing is committed yet,
    or nothing is known to be."""

    def size() -> int:
        return sum(path.stat().st_size for path in metadata_dir.glob("*.log"))

    before = size()
    start()
    deadline = time.monotonic() + WAIT_S
    while size() == before:
        assert time.monotonic() < deadline
    kill()


@pytest.mark.parametrize(
    ("levels", "way", "turns"),
    [
        pytest.param(Levels(33, 1), "standalone", 1, id="33, ELR, standalone, 1 turn"),
        *(
            pytest.param(
                levels,
                WAYS[number % len(WAYS)],
                TURNS,
                id=f"{levels.metadata}, ELR {levels.elr}, {WAYS[number % len(WAYS)]}",
                marks=LONG,
            )
            for number, levels in enumerate(LEVELS)
        ),
    ],
)
def test_one_node_keeps_what_the_oracle_formatted_in_every_turn(
    levels: Levels, way: str, turns: int, tmp_path: Path
) -> None:
    """The first records are in the log once, whatever the start that wrote them."""
    place = formatted(tmp_path / "node", way, levels)
    ours, kafka = KraftboxServer(place), kafka_at(place)
    kafka.heap = "192m"
    world = World(place.bootstrap, 1)
    metadata_dir = place.data / "__cluster_metadata-0"
    for _ in range(KILLS):
        kill_before_a_commit(ours.begin, ours.kill, metadata_dir)
    servers: Iterator[tuple[str, Any]] = iter(
        [*([("ours", ours), ("kafka", kafka)] * turns), ("ours", ours)]
    )
    for number, (name, server) in enumerate(servers):
        server.start()
        try:
            world.check()
            world.add(f"{name}-{number}")
        finally:
            server.stop()
        check_image(metadata_dir, levels)
    log = (metadata_dir / f"{0:020}.log").read_bytes()
    records = [r for batch in read_batches(log) for r in batch.records]
    assert sum(type(r).__name__ == "UserScramCredentialRecord" for r in records) == 1


# --- three controllers and three brokers ----------------------------------------------------------


@contextmanager
def three_and_three(folder: Path, way: str, levels: Levels) -> Iterator[ProcessCluster]:
    """Format 3 + 3 nodes with Kafka's tool; nothing runs."""
    dynamic = way != "static"
    with ProcessCluster(folder, controllers=3, brokers=3, dynamic=dynamic) as cluster:
        for node in cluster.nodes.values():
            options: list[str] = []
            if dynamic and node.is_controller:
                options = ["--initial-controllers", cluster.initial_controllers()]
                if way == "standalone and observers":
                    options = ["--standalone"] if node.id == 1 else ["--no-initial-controllers"]
            KafkaInPlace(node).node.format(CLUSTER_ID, *options, *levels.options(), *SCRAM)
            assert not (node.data / "bootstrap.checkpoint").exists()
        yield cluster


def start_ours(cluster: ProcessCluster) -> None:
    running = {node.id: starts_of(node) for node in cluster.brokers}
    for node in cluster.nodes.values():
        node.start()
    for node in cluster.brokers:
        until("a broker", lambda n=node: starts_of(n) > running[n.id], WAIT_S)  # type: ignore[misc]


def starts_of(node: NodeProcess) -> int:
    path = node.directory / "node.log"
    return path.read_text().count("to RUNNING") if path.exists() else 0


def stop_ours(cluster: ProcessCluster) -> None:
    for node in [*cluster.brokers, *cluster.controllers]:
        assert node.stop() == 0


@contextmanager
def kafka_on(cluster: ProcessCluster) -> Iterator[None]:
    """Run Kafka's nodes on all directories."""
    theirs = [KafkaInPlace(node) for node in cluster.nodes.values()]
    try:
        for one in theirs:
            one.begin()
        for one in theirs:
            one.wait_until_ready()
        yield
    finally:
        for one in [*theirs[3:], *theirs[:3]]:
            one.stop()


@pytest.mark.parametrize(
    ("levels", "way", "turns"),
    [
        pytest.param(Levels(33, 1), "static", TURNS, id="33, ELR, static", marks=LONG),
        pytest.param(Levels(31, 0), "initial controllers", TURNS, id="31, initial", marks=LONG),
        pytest.param(Levels(32, 1), "standalone and observers", TURNS, id="32, one", marks=LONG),
        pytest.param(Levels(30, 1), "initial controllers", TURNS, id="30, initial", marks=LONG),
    ],
)
def test_three_and_three_keep_what_the_oracle_formatted_in_every_turn(
    levels: Levels, way: str, turns: int, tmp_path: Path
) -> None:
    """A leader without followers is killed with the first records in its log alone."""
    with three_and_three(tmp_path, way, levels) as cluster:
        world = World(cluster.bootstrap, 3)
        first, second, _ = cluster.controllers
        if way != "standalone and observers":
            second.start()
        kill_before_a_commit(first.start, first.kill, first.metadata_dir)
        second.kill()
        for number in range(turns):
            start_ours(cluster)
            world.check()
            world.add(f"ours-{number}")
            stop_ours(cluster)
            check_all(cluster, levels)
            with kafka_on(cluster):
                world.check()
                world.add(f"kafka-{number}")
            check_all(cluster, levels)
        start_ours(cluster)
        world.check()
        stop_ours(cluster)


def check_all(cluster: ProcessCluster, levels: Levels) -> None:
    for node in cluster.nodes.values():
        check_image(node.metadata_dir, levels)
