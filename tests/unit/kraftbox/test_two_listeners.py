"""A node with two listeners for clients, each with addresses that its clients can reach.

The advertised hosts do not exist, since only the node's answers matter here.
"""

import pytest

from kraftbox.node import Node
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection
from testkit.memory.metric_traffic import create_topic
from testkit.memory.node import running_node

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "advertised.listeners": "PLAINTEXT://inside.example:9092,OUTSIDE://outside.example:19092",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
ADVERTISED = {"PLAINTEXT": ("inside.example", 9092), "OUTSIDE": ("outside.example", 19092)}

Address = tuple[str, int]


async def connect(node: Node, listener: str) -> Connection:
    assert node.broker is not None
    assert node.controller is not None
    bound = {**node.broker.bound_listeners, **node.controller.bound_listeners}
    return await Connection.connect("127.0.0.1", bound[listener][1], "client", 5_000)


async def by_metadata(connection: Connection) -> set[Address]:
    found = set()
    for version in range(14):
        every = MetadataRequest(topics=None if version else [])
        reply = await connection.request(every, version=version)
        assert reply.topics[0].partitions[0].leader_id == reply.brokers[0].node_id
        found |= {(each.host, each.port) for each in reply.brokers}
    return found


async def by_describe_cluster(connection: Connection) -> set[Address]:
    found = set()
    for version in range(3):
        reply = await connection.request(DescribeClusterRequest(), version=version)
        assert reply.controller_id == reply.brokers[0].broker_id
        found |= {(each.host, each.port) for each in reply.brokers}
    return found


async def by_find_coordinator(connection: Connection) -> set[Address]:
    found = set()
    for version in range(7):
        many = version >= 4
        request = FindCoordinatorRequest(**({"coordinator_keys": ["g"]} if many else {"key": "g"}))
        # The first request creates the topic of the groups.
        while True:
            reply = await connection.request(request, version=version)
            answer = reply.coordinators[0] if many else reply
            if answer.error_code == 0:
                break
        found.add((answer.host, answer.port))
    return found


@pytest.mark.parametrize("ask", [by_metadata, by_describe_cluster, by_find_coordinator])
async def test_each_listener_returns_its_advertised_addresses_in_every_version(ask) -> None:
    async with running_node(settings=SETTINGS) as node:
        for listener, address in ADVERTISED.items():
            connection = await connect(node, listener)
            if listener == "PLAINTEXT":
                await create_topic(connection, "t")
            assert await ask(connection) == {address}, listener
            await connection.close()


async def test_controller_listener_returns_addresses_of_controllers() -> None:
    async with running_node(settings=SETTINGS) as node:
        connection = await connect(node, "CONTROLLER")
        reply = await connection.request(DescribeClusterRequest(endpoint_type=2))
        assert node.controller is not None
        port = node.controller.bound_listeners["CONTROLLER"][1]
        assert [(each.host, each.port) for each in reply.brokers] == [("127.0.0.1", port)]
        await connection.close()


async def test_partitions_have_the_same_leader_on_both() -> None:
    async with running_node(settings=SETTINGS) as node:
        leaders = []
        for listener in ADVERTISED:
            connection = await connect(node, listener)
            if listener == "PLAINTEXT":
                await create_topic(connection, "t")
            topic = DescribeTopicPartitionsRequest.TopicRequest(name="t")
            reply = await connection.request(DescribeTopicPartitionsRequest(topics=[topic]))
            leaders.append([each.leader_id for each in reply.topics[0].partitions])
            await connection.close()
        assert leaders == [[1, 1], [1, 1]]
