"""A broker of another cluster takes over the port and id of a broker that has ended (KIP-1242).

Clients of cluster A know broker 3 from metadata only; their bootstrap server is broker 2. Broker 3
is killed, and broker 3 of cluster B serves a topic of the same name at its port. A client that
checks the cluster sends B no record. B refuses the connection, and the client begins again with its
bootstrap server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from client.cluster_client import ClusterClient
from protocol.batch.records import Record, build_batch, read_records
from protocol.errors import ApiError
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE, java_program, kafka_libs
from testkit.kafka.twins import KraftboxServer, NodeDirectory, kafka_at
from testkit.processes.quorum_cluster import HOST, NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

SOURCE = Path(__file__).parent / "java" / "SteadyProducer.java"
TOPIC = "orders"
STAYS, REPLACED = 2, 3
"""Brokers of A: the bootstrap server, and the one whose port B takes."""
OTHER_ID = "4L6g3nShT-eMCtK--X86sw"
PARTITIONS = 2
WAIT_S = 90.0
PROGRESS = 20
"""Records that each client must have acknowledged between two steps."""


class Server(Protocol):
    """A broker that can be killed and started again."""

    def start(self) -> Any: ...
    def kill(self) -> None: ...


# --- clients --------------------------------------------------------------------------------------


class JavaSender:
    """The Java producer of the oracle, in a process of its own."""

    def __init__(self, command: list[str], bootstrap: str, *, check: bool) -> None:
        options = [f"metadata.cluster.check.enable={str(check).lower()}"]
        options += ["enable.idempotence=false", "linger.ms=0", "reconnect.backoff.max.ms=200"]
        self._process = subprocess.Popen(
            [command[0], "-Xmx64m", *command[1:], bootstrap, TOPIC, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.acknowledged = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.acknowledged = int(line)

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("end\n")
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()


class ThreadSender:
    """A client in a thread of this process; `_run` sends until `_end` is set."""

    def __init__(self, bootstrap: str, *, check: bool) -> None:
        self.bootstrap = bootstrap
        self.check = check
        self.acknowledged = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


class LibrdkafkaSender(ThreadSender):
    """librdkafka has no check of the cluster."""

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        number = 0
        while not self._end.is_set():
            if len(producer) < 1000:
                value = f"librdkafka-{number}"
                producer.produce(
                    TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            producer.poll(0.005)
        producer.flush(10)

    def _delivered(self, error: Any, _message: Any) -> None:
        self.acknowledged += error is None


class OurSender(ThreadSender):
    """The client of this project."""

    def _run(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        client = await ClusterClient.connect(
            self.bootstrap, timeout_ms=30_000, check_cluster=self.check
        )
        async with client:
            await asyncio.gather(*(self._send(client, index) for index in range(PARTITIONS)))

    async def _send(self, client: ClusterClient, partition: int) -> None:
        number = 0
        while not self._end.is_set():
            batch = build_batch([Record(value=f"ours-{partition}-{number}".encode())])
            try:
                await client.produce(TOPIC, partition, batch, timeout_ms=2_000)
            except (ApiError, OSError):
                continue
            self.acknowledged += 1
            number += 1
            await asyncio.sleep(0.005)


# --- clusters -------------------------------------------------------------------------------------


class Clusters:
    """Cluster A with its clients, and the broker of B that takes over a port of A."""

    def __init__(self, a: ProcessCluster, replaced: Server, b: Server, b_place: NodeDirectory):
        self.a = a
        self.replaced = replaced
        self.b = b
        self.b_place = b_place
        self.senders: list[JavaSender | ThreadSender] = []

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.a.nodes[STAYS].port}"

    def leaders(self) -> list[int]:
        """Return the leaders in A's metadata, by the broker that stays."""
        return asyncio.run(leaders_at(self.a.nodes[STAYS].port))

    def progress(self) -> None:
        """Wait until A has acknowledged further records of every client."""
        goals = [(one, one.acknowledged + PROGRESS) for one in self.senders]
        until("more records", lambda: all(s.acknowledged >= goal for s, goal in goals), WAIT_S)

    def play_round(self) -> None:
        self.replaced.kill()
        self.b.start()
        until("only one leader", lambda: set(self.leaders()) == {STAYS}, WAIT_S)
        self.progress()
        self.b.kill()
        self.replaced.start()
        until("both leaders", lambda: set(self.leaders()) == {STAYS, REPLACED}, WAIT_S)
        self.progress()

    def received_by_b(self) -> Counter[str]:
        """Return the number of records in B's log by client."""
        found: Counter[str] = Counter()
        for path in self.b_place.data.glob(f"{TOPIC}-*/*.log"):
            records = read_records(path.read_bytes())
            found.update((one.value or b"").split(b"-")[0].decode() for one in records)
        return found


async def leaders_at(port: int) -> list[int]:
    connection = await Connection.connect(HOST, port, "test", 5_000)
    try:
        wanted = MetadataRequest.MetadataRequestTopic(name=TOPIC)
        answer = await connection.request(MetadataRequest(topics=[wanted]), 5_000)
    finally:
        await connection.close()
    return [one.leader_id for one in answer.topics[0].partitions]


def other_place(folder: Path, like: NodeProcess) -> NodeDirectory:
    """Return a combined node with the broker id and the port of a node of A."""
    settings = {"node.id": str(like.id), "log.cleaner.dedupe.buffer.size": "4194304"}
    place = NodeDirectory(folder, {**settings, "auto.create.topics.enable": "false"})
    for key in ("listeners", "advertised.listeners"):
        place.settings[key] = place.settings[key].replace(f":{place.port},", f":{like.port},")
    place.port = like.port
    place.write_config()
    return place


def format_other(place: NodeDirectory, *, kafka: bool) -> Server:
    """Format B's node; return it, not started."""
    if kafka:
        node = kafka_at(place)
        node.heap = "192m"
        node.format(OTHER_ID, "--standalone")
        return node
    command = [sys.executable, "-m", "kraftbox", "storage", "format", "--standalone"]
    command += ["--cluster-id", OTHER_ID, "--config", str(place.write_config())]
    subprocess.run(command, check=True, capture_output=True)
    return KraftboxServer(place)


def create(bootstrap: str, assignment: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment)
    admin.create_topics([topic])[TOPIC].result(WAIT_S)


@contextmanager
def clusters(folder: Path, *, kafka: bool) -> Iterator[Clusters]:
    """Start A with our controller and two brokers of one kind; B has the topic, and has ended."""
    settings = {"leader.imbalance.check.interval.seconds": "1"}
    levels = LEVELS[ORACLE]
    with (
        ProcessCluster(
            folder / "a", controllers=1, brokers=2, settings=settings, features=levels
        ) as a,
        ExitStack() as started,
    ):
        place = other_place(folder / "b", a.nodes[REPLACED])
        b = format_other(place, kafka=kafka)
        b.start()
        started.callback(b.kill)
        create(place.bootstrap, [[REPLACED]] * PARTITIONS)
        b.kill()
        a.format()
        a.nodes[1].start()
        replaced: Server = a.nodes[REPLACED]
        if kafka:
            theirs = [KafkaInPlace(a.nodes[one]) for one in (STAYS, REPLACED)]
            for one in theirs:
                started.callback(one.kill)
                one.start()
            replaced = theirs[1]
        else:
            for node in a.brokers:
                node.start()
                until("a broker", lambda n=node: "to RUNNING" in n.log_text)  # type: ignore[misc]
        create(a.bootstrap, [[STAYS, REPLACED], [REPLACED, STAYS]])
        yield Clusters(a, replaced, b, place)


class Running:
    """The clients of A while a test plays."""

    def __init__(self, place: Clusters, classes: Path, *, check: bool) -> None:
        self.place = place
        self.classes = classes
        self.check = check

    def __enter__(self) -> Self:
        address = self.place.bootstrap
        command = java_program(SOURCE, self.classes, ORACLE)
        senders = self.place.senders
        senders.append(JavaSender(command, address, check=self.check))
        senders.append(LibrdkafkaSender(address, check=self.check))
        senders.append(OurSender(address, check=self.check))
        return self

    def __exit__(self, *_: object) -> None:
        for sender in self.place.senders:
            sender.stop()


LONG = pytest.mark.soak


@pytest.mark.parametrize(
    ("kafka", "rounds"),
    [
        pytest.param(False, 2, id="ours"),
        pytest.param(False, 50, id="ours, 50 rounds", marks=LONG),
        pytest.param(True, 50, id="theirs, 50 rounds", marks=LONG),
    ],
)
def test_client_that_checks_the_cluster_sends_another_one_no_record(
    kafka: bool, rounds: int, tmp_path: Path
) -> None:
    """KIP-1242: the Java client of 4.4.0 and ours check the cluster; librdkafka does not."""
    with clusters(tmp_path, kafka=kafka) as place:
        with Running(place, tmp_path / "classes", check=True):
            place.progress()
            for _ in range(rounds):
                place.play_round()
        received = place.received_by_b()
        sent = {type(one).__name__: one.acknowledged for one in place.senders}
    print(f"{rounds} rounds: B received {dict(received)}; acknowledged {sent}")
    assert received["java"] == received["ours"] == 0, received


@LONG
def test_client_without_the_check_sends_another_cluster_records(tmp_path: Path) -> None:
    """Without the check the same rounds lead records astray: the rounds can show the fault."""
    with clusters(tmp_path, kafka=False) as place:
        with Running(place, tmp_path / "classes", check=False):
            place.progress()
            for _ in range(10):
                place.play_round()
        received = place.received_by_b()
    print(f"10 rounds without the check: B received {dict(received)}")
    assert received["java"] > 0 and received["ours"] > 0, received
