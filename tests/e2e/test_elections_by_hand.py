"""Elections by hand on a cluster of processes, with an unmodified client beside (KIP-966)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from client.addresses import parse_addresses
from protocol.api_keys import ApiKey
from protocol.schema import VersionRange
from protocol.transport.client import Connection
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = pytest.mark.e2e

WAIT_S = 30
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftboxCluster]:
    """Topic t on brokers 1 and 2; broker 3 is there to be asked."""
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
    done = cluster.run("elect", "--explain", "t-0", "--json", "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


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
    """Values from the start, and where the log ends."""
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
    """The leader dies, and the other replica comes back, which may not lead by itself."""
    cluster.command("node", "kill", str(3 - broker_id))
    until("nobody leads", lambda: explained(cluster)["leader"] == -1, WAIT_S)
    cluster.command("node", "start", str(broker_id))
    until("it is back", lambda: reasons(explained(cluster))[broker_id] != "is fenced", WAIT_S)


def test_an_operator_finds_out_why_nobody_leads_and_elects(cluster: KraftboxCluster) -> None:
    produce(cluster, 100)
    cluster.command("node", "kill", "2")
    until("2 is out of the ISR", lambda: explained(cluster)["isr"] == [1], WAIT_S)
    produce(cluster, 50)
    cluster.command("node", "kill", "1")
    until("nobody leads", lambda: explained(cluster)["leader"] == -1, WAIT_S)
    told = explained(cluster)
    assert (told["waits"], told["waits_for"]) == ("clean-candidate", [1])
    assert reasons(told) == {1: "is fenced", 2: "is fenced"}
    (waiting,) = cluster.status()["partitions"]["waiting"]
    assert (waiting["topic"], waiting["partition"], waiting["waitsFor"]) == ("t", 0, [1])

    # 2 comes back without what it missed. It does not lead by itself, and cannot cleanly.
    cluster.command("node", "start", "2")
    until("2 is back", lambda: reasons(explained(cluster))[2] != "is fenced", WAIT_S)
    assert "it is in neither ISR nor ELR" in str(reasons(explained(cluster))[2])
    refused = cluster.run("elect", "t-0", "--json", "-b", cluster.bootstrap)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)[0]["error"] == "PREFERRED_LEADER_NOT_AVAILABLE"

    elected = cluster.run("elect", "t-0", "--type", "unclean", "-b", cluster.bootstrap)
    assert (elected.returncode, elected.stdout) == (0, "t-0: elected\n"), elected.stderr
    # What only 1 has is lost.
    assert consume(cluster, 100) == ([str(number).encode() for number in range(100)], 100)
    told = explained(cluster)
    assert (told["leader"], told["isr"], told["waits"]) == (2, [2], None)

    # The other way round, by the longest log of those that are alive, and by name.
    only_one_is_alive(cluster, 1)
    elected = cluster.run(
        *("elect", "t-0", "--type", "longest-log-aggressive", "-b", cluster.bootstrap)
    )
    assert (elected.returncode, elected.stdout) == (0, "t-0: elected\n"), elected.stderr
    told = explained(cluster)
    assert (told["leader"], told["isr"]) == (1, [1])
    only_one_is_alive(cluster, 2)
    designation = ("elect", "t-0", "--type", "designation", "-b", cluster.bootstrap, "--leader")
    refused = cluster.run(*designation, "3")
    assert (refused.returncode, "INVALID_REQUEST" in refused.stdout + refused.stderr) == (1, True)
    elected = cluster.run(*designation, "2")
    assert (elected.returncode, elected.stdout) == (0, "t-0: elected\n"), elected.stderr
    told = explained(cluster)
    assert (told["leader"], told["isr"]) == (2, [2])
    assert consume(cluster, 100) == ([str(number).encode() for number in range(100)], 100)


def test_others_see_nothing_of_it(cluster: KraftboxCluster) -> None:
    foreign = asyncio.run(versions_for(cluster, "apache-kafka-java"))
    own = asyncio.run(versions_for(cluster, "kraftbox"))
    assert ApiKey.EXPLAIN_ELECTION in own
    assert {int(ApiKey.EXPLAIN_ELECTION), int(ApiKey.GET_REPLICA_LOG_INFO)}.isdisjoint(foreign)
    assert foreign[ApiKey.ELECT_LEADERS].last == 2
