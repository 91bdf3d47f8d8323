"""KIP-951 with librdkafka and Java 4.4.0: clients go to the leader that a refusal names.

The brokers' request logs show the refusal, and then the first request that the new leader served.
Without a Metadata request of that client in between, only the refusal can have named the leader. A
client may request metadata anyway (librdkafka always does), and sometimes that request arrives
first. So leadership moves until a move without one was seen. Java's clients wait ten seconds before
a new request for metadata, so that one move is enough.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from client.cluster_client import ClusterClient
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from testkit.kafka.jars import kafka_libs
from testkit.kafka.tools import KafkaTools
from testkit.processes.listing import listed
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("default")]

TOOLS = "org.apache.kafka.tools."
WAIT_S = 120
BACK_OFF_MS = 10_000
MOVES_MAX = 8
JAVAS_PRODUCER = "perf-producer-client"  # the tool's own choice
JAVAS_CONSUMER = "java-consumer"
MOVED = "NOT_LEADER_OR_FOLLOWER"
FENCED = "FENCED_LEADER_EPOCH"


class Answered(NamedTuple):
    """One line of a broker's request log."""

    at_ms: int
    node: int
    api: str
    version: int
    errors: tuple[str, ...]


class Logged:
    """Three brokers that log every request."""

    def __init__(self, cluster: KraftboxCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create(self, topic: str) -> None:
        wanted = ("--partitions", "1", "--replication-factor", "3")
        done = self.cluster.run("topics", "create", topic, *wanted, "-b", self.cluster.bootstrap)
        assert done.returncode == 0, done.stderr
        until("the broker asked knows the topic", lambda: self.leader(topic) > 0, WAIT_S)
        self.move(topic)

    def leader(self, topic: str) -> int:
        partitions = listed(self.admin, topic).topics[topic].partitions
        return partitions[0].leader if partitions else -1

    def move(self, topic: str) -> int:
        """Move the partition to another broker of its ISR, and return that broker."""
        before = self.leader(topic)
        to = before % 3 + 1
        asyncio.run(give_leadership(self.cluster.bootstrap, topic, to))
        until(f"broker {to} leads", lambda: self.leader(topic) == to, WAIT_S)
        return to

    def answered(self, client_id: str) -> list[Answered]:
        """Return the brokers' answers to one client, in order of arrival."""
        found = []
        for node in (1, 2, 3):
            log = self.cluster.directory / f"node-{node}" / "node.log"
            for line in log.read_text().splitlines():
                entry: dict[str, Any] = json.loads(line)
                if entry.get("event") == "request" and entry["client_id"] == client_id:
                    found.append(
                        Answered(
                            entry["arrived_ms"],
                            node,
                            entry["api"],
                            entry["version"],
                            tuple(entry["errors"]),
                        )
                    )
        return sorted(found)

    def went_by_itself(self, client_id: str, api: str, to: int, version_min: int) -> bool:
        """Return whether the client's last move, to broker `to`, took no Metadata request."""
        answered = self.answered(client_id)
        refused = [
            position
            for position, one in enumerate(answered)
            if one.api == api and {MOVED, FENCED} & set(one.errors)
        ]
        served = [
            position
            for position, one in enumerate(answered)
            if one.api == api and one.node == to and not one.errors and position > refused[0]
        ]
        begun = max(position for position in refused if position < served[-1])
        ended = min(position for position in served if position > begun)
        assert answered[begun].node != to and answered[begun].version >= version_min
        return not any(one.api == "METADATA" for one in answered[begun:ended])


async def give_leadership(bootstrap: str, topic: str, to: int) -> None:
    """Put `to` first among the replicas, then elect the preferred leader."""
    addresses = [(host, int(port)) for host, port in (b.split(":") for b in bootstrap.split(","))]
    client = await ClusterClient.connect(addresses, "mover")
    order = [to, *(broker for broker in (1, 2, 3) if broker != to)]
    reordered = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=topic,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(
                        partition_index=0, replicas=order
                    )
                ],
            )
        ]
    )
    elected = ElectLeadersRequest(
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])]
    )
    try:
        await client.request_any(reordered)
        answer = await client.request_any(elected)
    finally:
        await client.close()
    assert answer.replica_election_results[0].partition_result[0].error_code == 0, answer


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    cluster = KraftboxCluster(
        tmp_path_factory.mktemp("discovery") / "cluster",
        *("--port", "0", "--controllers", "1", "--brokers", "3"),
        *("--set", "kraftbox.log.requests=true"),
        *("--set", "kraftbox.log.format=json"),
        *("--set", "auto.leader.rebalance.enable=false"),
    )
    try:
        cluster.start()
        yield Logged(cluster)
    finally:
        cluster.end(signal.SIGKILL)


def librdkafka(logged: Logged, client_id: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": logged.cluster.bootstrap,
        "client.id": client_id,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def test_librdkafka_produces_to_the_new_leader(logged: Logged) -> None:
    logged.create("rd-produce")
    producer = Producer(librdkafka(logged, "rd-producer", acks="all", linger_ms=0))
    errors: list[object] = []

    def move_and_send() -> bool:
        to = logged.move("rd-produce")
        producer.produce("rd-produce", b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0
        return logged.went_by_itself("rd-producer", "PRODUCE", to, 10)

    producer.produce("rd-produce", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert any(move_and_send() for _ in range(MOVES_MAX))
    assert set(errors) == {None}


def test_librdkafka_fetches_from_the_new_leader(logged: Logged) -> None:
    logged.create("rd-fetch")
    producer = Producer({"bootstrap.servers": logged.cluster.bootstrap})
    consumer = Consumer(librdkafka(logged, "rd-consumer", group_id="unused", fetch_wait_max_ms=100))
    consumer.assign([TopicPartition("rd-fetch", 0, 0)])

    def pass_one(value: bytes) -> None:
        producer.produce("rd-fetch", value)
        producer.flush(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                assert message.value() == value
                return
        raise AssertionError(f"{value!r} did not come")

    def move_and_pass(number: int) -> bool:
        to = logged.move("rd-fetch")
        pass_one(str(number).encode())
        return logged.went_by_itself("rd-consumer", "FETCH", to, 16)

    pass_one(b"before")
    assert any(move_and_pass(number) for number in range(MOVES_MAX))
    consumer.close()


class Running(threading.Thread):
    """A Kafka tool that runs for a while in a JVM of its own."""

    def __init__(self, folder: Path, name: str, *arguments: str, patience_ms: int) -> None:
        super().__init__()
        self._folder = folder
        self._name = name
        self._arguments = arguments
        self._patience_ms = patience_ms
        self.out = ""

    def run(self) -> None:
        with KafkaTools(self._folder) as tools:
            done = tools.run(self._name, *self._arguments, patience_ms=self._patience_ms)
        self.out = done.text


def test_java_produces_to_and_fetches_from_the_new_leader(logged: Logged, tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    logged.create("java")
    slowly = [f"retry.backoff.ms={BACK_OFF_MS}", f"retry.backoff.max.ms={BACK_OFF_MS}"]
    consumes = [*slowly, f"client.id={JAVAS_CONSUMER}", "fetch.max.wait.ms=100"]
    at = ("--bootstrap-server", logged.cluster.bootstrap, "--topic", "java")
    many = ("--num-records", "200", "--record-size", "10", "--throughput", "20")
    producer = Running(
        tmp_path / "p",
        TOOLS + "ProducerPerformance",
        *(*at, *many, "--command-property", *slowly, "linger.ms=0", "acks=all"),
        patience_ms=120_000,
    )
    consumer = Running(
        tmp_path / "c",
        TOOLS + "consumer.ConsoleConsumer",
        *(*at, "--partition", "0", "--offset", "earliest", "--max-messages", "200"),
        *(part for each in consumes for part in ("--command-property", each)),
        patience_ms=120_000,
    )

    def served(client_id: str, api: str, node: int) -> bool:
        return any(
            one.api == api and one.node == node and not one.errors
            for one in logged.answered(client_id)
        )

    before = logged.leader("java")
    # The producer ends by itself, so it starts once the consumer reads.
    consumer.start()
    until("the consumer reads", lambda: served(JAVAS_CONSUMER, "FETCH", before), WAIT_S)
    producer.start()
    until("the producer writes", lambda: served(JAVAS_PRODUCER, "PRODUCE", before), WAIT_S)
    to = logged.move("java")
    producer.join()
    consumer.join()
    assert "200 records sent" in producer.out, producer.out
    assert "Processed a total of 200 messages" in consumer.out, consumer.out
    assert logged.went_by_itself(JAVAS_PRODUCER, "PRODUCE", to, 10)
    assert logged.went_by_itself(JAVAS_CONSUMER, "FETCH", to, 16)
