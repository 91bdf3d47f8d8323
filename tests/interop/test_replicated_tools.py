"""Kafka's own tools on a cluster of three brokers of ours: move, elect, describe, verify.

kafka_tools/ tests the tools with one node; this module tests uses that need replicas. All tests
share one cluster: each has topics of its own, and leaves all brokers running.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from client.cluster_client import ClusterClient
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from testkit.kafka.tools import KafkaTools
from testkit.processes.listing import listed
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("default")]

TOOLS = "org.apache.kafka.tools."
WAIT_S = 30
RECORDS = 500


class Replicated:
    """The cluster, and the tools connected to it."""

    def __init__(self, cluster: KraftboxCluster, tools: KafkaTools, folder: Path) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.tools = tools
        self._folder = folder

    def tool(self, name: str, *arguments: str, patience_ms: int = 60_000) -> str:
        """Run a tool and return its output, which must contain no error."""
        at = ("--bootstrap-server", self.cluster.bootstrap)
        done = self.tools.run(TOOLS + name, *at, *arguments, patience_ms=patience_ms)
        assert done.code == 0, done.text
        assert "Exception" not in done.text, done.text
        return done.out

    def create(
        self, topic: str, *replica_lists: str, records: int = RECORDS, **configs: str
    ) -> None:
        given = ["--replica-assignment", ",".join(replica_lists)]
        for key, value in configs.items():
            given += ["--config", f"{key.replace('_', '.')}={value}"]
        self.tool("TopicCommand", "--create", "--topic", topic, *given)
        self.produce(topic, len(replica_lists), RECORDS)

    def produce(self, topic: str, partitions: int, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        errors: list[object] = []
        for number in range(records):
            producer.produce(
                topic,
                str(number).encode(),
                partition=number % partitions,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(WAIT_S) == 0 and errors == []

    def consumed(self, topic: str, partitions: int, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "reader"})
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        found: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [m.value() for m in consumer.consume(1000, 0.2) if m.error() is None]
        consumer.close()
        return found

    def plan(self, *moves: tuple[str, int, list[int]]) -> tuple[str, str]:
        """Return the option with a reassignment file for these moves."""
        path = self._folder / f"moves-{moves[0][0]}.json"
        entries = [{"topic": t, "partition": p, "replicas": r} for t, p, r in moves]
        path.write_text(json.dumps({"version": 1, "partitions": entries}))
        return "--reassignment-json-file", str(path)

    def partition(self, topic: str, index: int = 0) -> tuple[int, list[int], list[int]]:
        """Return leader, replicas and ISR (in order of ids) as clients get them."""
        found = listed(self.admin, topic).topics[topic].partitions[index]
        return found.leader, list(found.replicas), sorted(found.isrs)

    def described(self, topic: str, *which: str) -> list[dict[str, str]]:
        """Return the partitions that kafka-topics --describe shows, by its own headings."""
        text = self.tool("TopicCommand", "--describe", "--topic", topic, *which)
        rows = [line for line in text.splitlines() if "Partition: " in line]
        return [dict(re.findall(r"(\w[\w ]*): ([^\t]*)", row)) for row in rows]

    def shows(self, topic: str, *rows: dict[str, str]) -> None:
        """Wait until kafka-topics --describe shows these cells.

        Each run may reach another broker, and brokers learn of a change at different times.
        """

        def seen() -> bool:
            found = self.described(topic)
            return len(found) == len(rows) and all(
                wanted.items() <= row.items() for wanted, row in zip(rows, found, strict=True)
            )

        until(f"{topic} is shown as {rows}", seen)


async def begin_reassignment(bootstrap: str, topic: str, replicas: list[int]) -> None:
    """Begin a reassignment of partition 0, as `--execute` does."""
    addresses = [(host, int(port)) for host, port in (b.split(":") for b in bootstrap.split(","))]
    client = await ClusterClient.connect(addresses)
    wanted = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=topic,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(
                        partition_index=0, replicas=replicas
                    )
                ],
            )
        ]
    )
    try:
        answer = await client.request_any(wanted)
    finally:
        await client.close()
    assert answer.responses[0].partitions[0].error_code == 0


@pytest.fixture(scope="module")
def cluster_and_tools(
    tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicated]:
    folder = tmp_path_factory.mktemp("replicated")
    cluster = KraftboxCluster(
        folder / "cluster",
        *("--port", "0", "--controllers", "1", "--brokers", "3"),
        *("--set", "broker.session.timeout.ms=2000"),
        *("--set", "broker.heartbeat.interval.ms=400"),
        *("--set", "kraftbox.broker.connection.loss.fence.ms=100"),
        *("--set", "auto.leader.rebalance.enable=false"),
    )
    try:
        cluster.start()
        yield Replicated(cluster, tools, folder)
    finally:
        cluster.end(signal.SIGKILL)


@pytest.fixture
def replicated(cluster_and_tools: Replicated) -> Iterator[Replicated]:
    """Return the cluster with all brokers running, whatever the test before did."""
    yield cluster_and_tools
    cluster = cluster_and_tools.cluster
    down = [node["id"] for node in cluster.status()["nodes"] if node["state"] != "running"]
    if down:
        cluster.command("node", "start", *map(str, down))


def test_a_reassignment_with_throttle_from_execute_to_verify(replicated: Replicated) -> None:
    r = replicated
    r.create("moved", "1:2", "2:1")
    plan = r.plan(("moved", 0, [3, 1]), ("moved", 1, [2, 3]))
    printed = r.tool(
        "reassign.ReassignPartitionsCommand", "--execute", *plan, "--throttle", "50000000"
    )
    assert "Successfully started partition reassignments for moved-0,moved-1" in printed
    done = "Reassignment of partition moved-{} is completed."
    verified = ""

    def is_done() -> bool:
        nonlocal verified
        verified = r.tool("reassign.ReassignPartitionsCommand", "--verify", *plan)
        return all(done.format(index) in verified for index in (0, 1))

    until("both partitions are where they should be", is_done)
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert "Clearing topic-level throttles on topic moved" in verified
    r.shows("moved", {"Replicas": "3,1"}, {"Replicas": "2,3"})
    until(
        "the new replicas are in sync",
        lambda: [r.partition("moved", index)[2] for index in (0, 1)] == [[1, 3], [2, 3]],
    )
    data = [r.cluster.directory / f"node-{node}" / "data" for node in (1, 2, 3)]
    until(
        "who is no replica any more has deleted its log (KAFKA-13972)",
        lambda: (
            [[(d / f"moved-{index}").exists() for d in data] for index in (0, 1)]
            == [[True, False, True], [False, True, True]]
        ),
    )
    until(
        "no topic-level throttles, as the broker asked has heard",
        lambda: "throttled" not in r.tool("TopicCommand", "--describe", "--topic", "moved"),
    )
    assert sorted(r.consumed("moved", 2, RECORDS)) == sorted(
        str(n).encode() for n in range(RECORDS)
    )
    assert "No partition reassignments found." in r.tool(
        "reassign.ReassignPartitionsCommand", "--list"
    )


def test_a_reassignment_to_a_dead_broker_is_listed_and_cancelled(replicated: Replicated) -> None:
    """The tool itself refuses to begin one, so our client does."""
    r = replicated
    r.create("stuck", "1:2")
    r.cluster.command("node", "kill", "3")
    plan = r.plan(("stuck", 0, [3, 2]))
    asyncio.run(begin_reassignment(r.cluster.bootstrap, "stuck", [3, 2]))
    listed = r.tool("reassign.ReassignPartitionsCommand", "--list")
    assert "stuck-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    verified = r.tool("reassign.ReassignPartitionsCommand", "--verify", *plan)
    assert "Reassignment of partition stuck-0 is still in progress." in verified
    on_its_way = {"Replicas": "3,2,1", "Isr": "1,2", "Adding Replicas": "3"}
    r.shows("stuck", {**on_its_way, "Removing Replicas": "1"})
    # a replica that is still being added is not missing
    assert r.described("stuck", "--under-replicated-partitions") == []
    # otherwise it would also remove throttles from the dead broker, and wait for it
    cancel = ("--cancel", *plan, "--preserve-throttles")
    cancelled = r.tool("reassign.ReassignPartitionsCommand", *cancel)
    assert "Successfully cancelled partition reassignment for: stuck-0" in cancelled
    r.shows("stuck", {"Replicas": "2,1"})
    assert "No partition reassignments found." in r.tool(
        "reassign.ReassignPartitionsCommand", "--list"
    )


def test_preferred_leaders_are_elected(replicated: Replicated) -> None:
    r = replicated
    r.create("preferred", "2:1", "2:3", "1:2")
    r.cluster.command("node", "stop", "2")
    r.shows("preferred", *({"Leader": leader} for leader in ("1", "3", "1")))
    r.produce("preferred", 3, RECORDS)
    r.cluster.command("node", "start", "2")
    until(
        "broker 2 is in sync again",
        lambda: all(2 in r.partition("preferred", index)[2] for index in range(3)),
    )
    printed = r.tool(
        "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"
    )
    assert "preferred-0" in printed and "preferred-1" in printed
    r.shows("preferred", *({"Leader": leader} for leader in ("2", "2", "1")))
    one = ("--topic", "preferred", "--partition", "0")
    printed = r.tool("LeaderElectionCommand", "--election-type", "preferred", *one)
    assert "Valid replica already elected for partitions preferred-0" in printed


def test_an_unclean_election_on_request(replicated: Replicated) -> None:
    """The test also uses every filter of kafka-topics --describe on the way."""
    r = replicated
    r.create("unclean", "1:2", min_insync_replicas="2")
    assert r.described("unclean", "--under-min-isr-partitions") == []
    assert len(r.described("unclean", "--at-min-isr-partitions")) == 1
    r.cluster.command("node", "kill", "2")
    until("broker 2 is out of the ISR", lambda: r.partition("unclean")[2] == [1])
    assert len(r.described("unclean", "--under-replicated-partitions")) == 1
    assert len(r.described("unclean", "--under-min-isr-partitions")) == 1
    assert r.described("unclean", "--unavailable-partitions") == []
    r.cluster.command("node", "kill", "1")
    r.cluster.command("node", "start", "2")
    until("nobody leads", lambda: r.partition("unclean")[0] == -1)
    (gone,) = r.described("unclean", "--unavailable-partitions")
    assert (gone["Leader"], gone["Isr"], gone["Elr"]) == ("none", "", "1")
    one = ("--topic", "unclean", "--partition", "0")
    printed = r.tool("LeaderElectionCommand", "--election-type", "unclean", *one)
    assert "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in printed
    r.shows("unclean", {"Leader": "2", "Isr": "2"})
    r.cluster.command("node", "start", "1")
    until("broker 1 follows", lambda: r.partition("unclean")[2] == [1, 2])


def test_replicas_are_verified(replicated: Replicated) -> None:
    r = replicated
    r.create("verified", "1:2:3")
    asked = ("--broker-list", r.cluster.bootstrap, "--topics-include", "verified")
    every = ("--report-interval-ms", "200")
    said = f"max lag is 0 for partition verified-0 at offset {RECORDS} among 1 partitions"
    # It runs until it is stopped; on a busy machine its first output is later.
    for patience_ms in (2_500, 10_000, 40_000):
        done = r.tools.run(
            TOOLS + "ReplicaVerificationTool", *asked, *every, patience_ms=patience_ms
        )
        if said in done.out:
            break
    assert said in done.out, done.text
