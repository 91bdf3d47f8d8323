"""Our elections seen by Kafka's tools and clients, without our own extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection
from protocol.transport.own_names import (
    BROKER_SOFTWARE_NAME,
    CONTROLLER_SOFTWARE_NAME,
    TOOL_SOFTWARE_NAME,
)
from testkit.audits import elections_of, kinds_of
from testkit.kafka.tools import KafkaTools
from testkit.processes.quorum_cluster import HOST, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.rest, pytest.mark.filterwarnings("default")]

ELECT_LEADERS, GET_REPLICA_LOG_INFO = 43, 10001
LAST_OF_KAFKA = 2
FOREIGN = ("apache-kafka-java", "librdkafka", "confluent-kafka-python", "kafka-python", "")
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
TOPIC, PARTITIONS = "many", 3000
WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"broker.session.timeout.ms": "3000", "auto.leader.rebalance.enable": "false"}
    directory = tmp_path_factory.mktemp("foreign")
    with ProcessCluster(directory, controllers=1, brokers=3, settings=settings) as made:
        yield made.start()


def offered(port: int, name: str) -> dict[int, int]:
    """Return the highest version of each API that is offered to a client of this software."""

    async def ask() -> Any:
        connection = await Connection.connect(HOST, port, "a client", 5000, negotiate=False)
        try:
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
            return await connection.request(request, 5000, version=3 if name else 0)
        finally:
            await connection.close()

    answer = asyncio.run(ask())
    assert answer.error_code == 0
    return {one.api_key: one.max_version for one in answer.api_keys}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_clients_are_offered_what_kafka_has(cluster: ProcessCluster, name: str) -> None:
    """The offer depends on the name that each client sends, on brokers and controllers."""
    for node in cluster.nodes.values():
        found = offered(node.port, name)
        assert GET_REPLICA_LOG_INFO not in found
        assert found[ELECT_LEADERS] == LAST_OF_KAFKA


def test_our_own_nodes_are_offered_more(cluster: ProcessCluster) -> None:
    """Without this check the test above could pass without any extension."""
    (broker, *_) = cluster.brokers
    assert GET_REPLICA_LOG_INFO in offered(broker.port, CONTROLLER_SOFTWARE_NAME)
    assert GET_REPLICA_LOG_INFO in offered(broker.port, BROKER_SOFTWARE_NAME)
    assert GET_REPLICA_LOG_INFO in offered(broker.port, TOOL_SOFTWARE_NAME)


def test_kafkas_tool_finds_nothing_of_ours(cluster: ProcessCluster, tools: KafkaTools) -> None:
    """The Java client has its own list of APIs that brokers serve."""
    done = tools.run(API_VERSIONS, "--bootstrap-server", cluster.bootstrap)
    assert done.code == 0, done.text
    assert f"ElectLeaders({ELECT_LEADERS}): 0 to {LAST_OF_KAFKA}" in done.out
    assert f"({GET_REPLICA_LOG_INFO})" not in done.out


def leaders(cluster: ProcessCluster) -> list[int]:
    async def ask() -> Any:
        connection = await Connection.connect(HOST, cluster.brokers[1].port, "a client", 5000)
        try:
            topic = MetadataRequest.MetadataRequestTopic(name=TOPIC)
            return await connection.request(MetadataRequest(topics=[topic]), 20_000)
        finally:
            await connection.close()

    (topic,) = asyncio.run(ask()).topics
    return [p.leader_id for p in sorted(topic.partitions, key=lambda p: p.partition_index)]


def test_kafkas_tool_elects_in_3000_partitions_at_once(
    cluster: ProcessCluster, tools: KafkaTools
) -> None:
    """Our requests may name fewer partitions; Kafka's versions have neither that limit nor its
    error code.

    The audit reports each election, and no possible loss.
    """
    servers = ("--bootstrap-server", cluster.bootstrap)
    first, second, _ = cluster.brokers
    assignment = ",".join([f"{first.id}:{second.id}"] * PARTITIONS)
    create = ("--create", "--topic", TOPIC, "--replica-assignment", assignment)
    done = tools.run(TOPICS, *servers, *create)
    assert done.code == 0, done.text
    until("a leader everywhere", lambda: leaders(cluster) == [first.id] * PARTITIONS, WAIT_S)
    first.stop()
    until("another leader", lambda: leaders(cluster) == [second.id] * PARTITIONS, WAIT_S)
    first.start()
    election = ("--election-type", "preferred", "--all-topic-partitions")

    def elected() -> bool:
        found = tools.run(ELECT, *servers, *election)
        assert "UNKNOWN_SERVER_ERROR" not in found.text
        assert "1000" not in found.err
        return leaders(cluster) == [first.id] * PARTITIONS

    until("the preferred leaders", elected, WAIT_S, every_s=1.0)
    told = kinds_of(elections_of(cluster.controllers[0].metadata_dir), TOPIC)
    assert told == {"isr": PARTITIONS, "preferred": PARTITIONS}
