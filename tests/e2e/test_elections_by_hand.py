"""Elections by hand on a cluster of processes, with an unmodified client (KIP-966)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from client.addresses import parse_addresses
from client.admin import Admin
from client.cluster_client import ClusterClient
from kraftbox.cli.explanation import document
from protocol.api_keys import ApiKey
from protocol.schema import VersionRange
from protocol.transport.client import Connection
from testkit.audits import elections_of
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = pytest.mark.e2e

WAIT_S = 30
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftboxCluster]:
    """Start a cluster with topic t on brokers 1 and 2; broker 3 only answers requests."""
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    options = ("--port", "0", "--controllers", "1", "--brokers", "3", *settings)
    made = KraftboxCluster(tmp_path_factory.mktemp("elections") / "cluster", *options).start()
    done = made.run(
        *("kafka-topics", "--bootstrap-server", made.bootstrap, "--create", "--topic", "t"),
        *("--replica-assignment", "1:2", "--config", "min.insync.replicas=1"),
    )
    assert done.returncode == 0, done.stderr
    yield made
    made.end()


def explained(cluster: KraftboxCluster) -> dict[str, Any]:
    """Return the output of `kraftbox elect --explain t-0 --json`, without a process for it."""

    async def ask() -> dict[str, Any]:
        async with await ClusterClient.connect(cluster.bootstrap) as client:
            (found,) = await Admin(client, WAIT_S * 1000).explain_elections([("t", 0)])
            return document(found)

    return asyncio.run(ask())


def reasons(told: dict[str, Any]) -> dict[int, str | None]:
    return {one["broker"]: one["reason"] for one in told["candidates"]}


async def versions_for(cluster: KraftboxCluster, software_name: str) -> dict[int, VersionRange]:
    address = parse_addresses(cluster.bootstrap)[-1]  # broker 3, which is not killed
    connection = await Connection.connect(*address, software_name=software_name)
    try:
        return connection.versions
    finally:
        await connection.close()


def produce(cluster: KraftboxCluster, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce("t", str(number).encode(), partition=0)
    assert producer.flush(WAIT_S) == 0


def consume(cluster: KraftboxCluster, count: int) -> tuple[list[bytes | None], int]:
    """Return the values from the start, and the log end."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        found = consumer.consume(count, timeout=WAIT_S)
        assert [one.error() for one in found] == [None] * len(found)
        _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=WAIT_S)
        return [one.value() for one in found], end
    finally:
        consumer.close()


def only_one_is_alive(cluster: KraftboxCluster, broker_id: int) -> None:
    """Kill the leader and restart the other replica, which may not lead by itself."""
    cluster.command("node", "kill", str(3 - broker_id))
    until("nobody leads", lambda: explained(cluster)["leader"] == -1, WAIT_S)
    cluster.command("node", "start", str(broker_id))
    until("it is back", lambda: reasons(explained(cluster))[broker_id] != "is fenced", WAIT_S)


def test_operator_reads_explanation_of_leaderless_partition_and_elects(
    cluster: KraftboxCluster,
) -> None:
    produce(cluster, 100)
    cluster.command("node", "kill", "2")
    until("2 is out of the ISR", lambda: explained(cluster)["isr"] == [1], WAIT_S)
    produce(cluster, 50)
    cluster.command("node", "kill", "1")
    until("nobody leads", lambda: explained(cluster)["leader"] == -1, WAIT_S)
    done = cluster.run("elect", "--explain", "t-0", "--json", "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["waits"], told["waits_for"]) == ("clean-candidate", [1])
    assert reasons(told) == {1: "is fenced", 2: "is fenced"}
    (waiting,) = cluster.status()["partitions"]["waiting"]
    assert (waiting["topic"], waiting["partition"], waiting["waitsFor"]) == ("t", 0, [1])

    # 2 comes back without the records it missed. It does not lead by itself, and cannot cleanly.
    cluster.command("node", "start", "2")
    until("2 is back", lambda: reasons(explained(cluster))[2] != "is fenced", WAIT_S)
    assert "it is in neither ISR nor ELR" in str(reasons(explained(cluster))[2])
    refused = cluster.run("elect", "t-0", "--json", "-b", cluster.bootstrap)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)[0]["error"] == "PREFERRED_LEADER_NOT_AVAILABLE"

    elected = cluster.run("elect", "t-0", "--type", "unclean", "-b", cluster.bootstrap)
    assert elected.returncode == 0, elected.stderr
    epoch = explained(cluster)["leader_epoch"]
    assert elected.stdout == (
        f"t-0: elected broker 2 (leader epoch {epoch}), whose log ends "
        "at 100 (last epoch 0); may be lost: unknown records of broker 1, which cannot report now\n"
    )
    # The records that only 1 has are lost.
    assert consume(cluster, 100) == ([str(number).encode() for number in range(100)], 100)
    told = explained(cluster)
    assert (told["leader"], told["isr"], told["waits"]) == (2, [2], None)

    # The other way round, by the longest log of those that are alive, and by name.
    only_one_is_alive(cluster, 1)
    elected = cluster.run(
        *("elect", "t-0", "--type", "longest-log-aggressive", "-b", cluster.bootstrap)
    )
    assert elected.returncode == 0, elected.stderr
    assert elected.stdout.startswith("t-0: elected broker 1 (leader epoch ")
    told = explained(cluster)
    assert (told["leader"], told["isr"]) == (1, [1])
    only_one_is_alive(cluster, 2)
    designation = ("elect", "t-0", "--type", "designation", "-b", cluster.bootstrap, "--leader")
    refused = cluster.run(*designation, "3")
    assert (refused.returncode, "INVALID_REQUEST" in refused.stdout + refused.stderr) == (1, True)
    elected = cluster.run(*designation, "2")
    assert elected.returncode == 0, elected.stderr
    assert elected.stdout.startswith("t-0: elected broker 2 (leader epoch ")
    told = explained(cluster)
    assert (told["leader"], told["isr"]) == (2, [2])
    assert consume(cluster, 100) == ([str(number).encode() for number in range(100)], 100)
    lossy = [(e.kind, e.to_leader) for e in elections_of(cluster.directory) if e.is_lossy]
    assert lossy == [("unclean", 2), ("unclean-recovery", 1), ("designated", 2)]


def test_balanced_and_by_kafkas_tool(cluster: KraftboxCluster, tmp_path: Path) -> None:
    """With strategy None no broker leads by itself, whichever is back."""
    told = explained(cluster)
    leader = told["leader"]
    cluster.command("node", "start", str(3 - leader))
    until("both are in sync", lambda: len(explained(cluster)["isr"]) == 2, WAIT_S)
    strategy = ("--add-config", "unclean.recovery.strategy=None")
    topic = ("--alter", "--entity-type", "topics", "--entity-name", "t", *strategy)
    done = cluster.run("kafka-configs", "--bootstrap-server", cluster.bootstrap, *topic)
    assert done.returncode == 0, done.stderr

    # The leader has the last records alone, and fails last: the other one has fewer.
    cluster.command("node", "kill", str(3 - leader))
    until("one is in sync", lambda: explained(cluster)["isr"] == [leader], WAIT_S)
    produce(cluster, 10)
    only_one_is_alive(cluster, 3 - leader)
    balanced = ("elect", "t-0", "--type", "longest-log-balanced", "--json")
    refused = cluster.run(*balanced, "--timeout", "1", "-b", cluster.bootstrap)
    assert refused.returncode == 1
    (result,) = json.loads(refused.stdout)
    assert (result["error"], result["elected"]) == ("REQUEST_TIMED_OUT", False)
    assert result["message"] == f"one of brokers {leader} has everything, and is waited for"
    cluster.command("node", "start", str(leader))
    until("it is back", lambda: reasons(explained(cluster))[leader] != "is fenced", WAIT_S)
    assert explained(cluster)["leader"] == -1
    elected = cluster.run(*balanced, "-b", cluster.bootstrap)
    assert elected.returncode == 0, elected.stdout
    assert json.loads(elected.stdout)[0]["elected"]
    assert explained(cluster)["leader"] == leader
    assert consume(cluster, 110)[1] == 110

    # The same by Kafka's tool, in the proposal's spelling, and by name from a file.
    file = tmp_path / "elections.json"
    tool = ("kafka-leader-election", "--bootstrap-server", cluster.bootstrap, "--election-type")
    for alive, kind, how in (
        (3 - leader, "longest_log_agressive", ("--topic", "t", "--partition", "0")),
        (leader, "DESIGNATION", ("--path-to-json-file", str(file))),
    ):
        until("both are in sync", lambda: len(explained(cluster)["isr"]) == 2, WAIT_S)
        cluster.command("node", "kill", str(alive))
        until("one is in sync", lambda a=alive: explained(cluster)["isr"] == [3 - a], WAIT_S)  # type: ignore[misc]
        only_one_is_alive(cluster, alive)
        one = {"topic": "t", "partition": 0, "desiredLeader": alive}
        file.write_text(json.dumps({"partitions": [one]}))
        done = cluster.run(*tool, kind, *how)
        said = f"Successfully completed leader election ({kind.upper()}) for partitions t-0\n"
        assert (done.returncode, done.stdout) == (0, said), done.stderr
        assert explained(cluster)["leader"] == alive
        cluster.command("node", "start", str(3 - alive))


def test_others_see_nothing_of_it(cluster: KraftboxCluster) -> None:
    foreign = asyncio.run(versions_for(cluster, "apache-kafka-java"))
    own = asyncio.run(versions_for(cluster, "kraftbox"))
    assert ApiKey.EXPLAIN_ELECTION in own
    assert {int(ApiKey.EXPLAIN_ELECTION), int(ApiKey.GET_REPLICA_LOG_INFO)}.isdisjoint(foreign)
    assert foreign[ApiKey.ELECT_LEADERS].last == 2
