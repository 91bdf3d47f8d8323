"""`controller_mutation_rate` on a whole node: clients' results, and the pause of their
connections."""

from __future__ import annotations

import asyncio

import pytest

from kraftbox.node import Node
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection
from testkit.memory.node import running_node

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
SETTINGS = {"controller.quota.window.num": "1"}
RATE = 10.0
"""A second refills ten partitions, which is also the limit of the bucket."""


async def connect(node: Node, client_id: str, listener: str = "PLAINTEXT") -> Connection:
    assert node.broker is not None
    assert node.controller is not None
    bound = {**node.broker.bound_listeners, **node.controller.bound_listeners}
    return await Connection.connect("127.0.0.1", bound[listener][1], client_id, 5_000)


async def limit(node: Node, client_id: str) -> None:
    connection = await connect(node, "admin")
    entry = AlterClientQuotasRequest.EntryData(
        entity=[
            AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=client_id)
        ],
        ops=[AlterClientQuotasRequest.OpData(key="controller_mutation_rate", value=RATE)],
    )
    reply = await connection.request(AlterClientQuotasRequest(entries=[entry]))
    assert reply.entries[0].error_code == 0
    await connection.close()


def create(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=5_000)


def outcome(reply: CreateTopicsResponse) -> int:
    return reply.topics[0].error_code


async def test_strict_version_over_quota_is_refused_with_throttle_time() -> None:
    async with running_node(settings=SETTINGS) as node:
        await limit(node, "greedy")
        greedy, other = await connect(node, "greedy"), await connect(node, "other")
        reply = await greedy.request(create("a", 150))
        assert (outcome(reply), reply.throttle_time_ms) == (ErrorCode.NONE, 0)
        reply = await greedy.request(create("b", 1))
        assert outcome(reply) == REFUSED
        assert 0 < reply.throttle_time_ms <= 14_000
        assert outcome(await other.request(create("b", 30))) == ErrorCode.NONE
        assert outcome(await other.request(create("c", 30))) == ErrorCode.NONE
        for connection in (greedy, other):
            await connection.close()


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
async def test_throttled_client_is_not_read_until_its_time_is_over(listener: str) -> None:
    async with running_node(settings=SETTINGS) as node:
        await limit(node, "greedy")
        greedy = await connect(node, "greedy", listener)
        loop = asyncio.get_running_loop()
        reply = await greedy.request(create("a", 13), version=5)
        assert outcome(reply) == ErrorCode.NONE
        assert 0 < reply.throttle_time_ms <= 300
        began_s = loop.time()
        await greedy.request(create("b", 1), version=5)
        assert (loop.time() - began_s) * 1000 >= reply.throttle_time_ms * 0.9
        await greedy.close()


async def test_auto_created_topics_count_against_quota_of_their_client() -> None:
    async with running_node(settings=SETTINGS) as node:
        await limit(node, "greedy")
        greedy, other = await connect(node, "greedy"), await connect(node, "other")
        await greedy.request(create("a", 1_000), version=7)
        for connection, name in ((greedy, "refused"), (other, "created")):
            wanted = MetadataRequest.MetadataRequestTopic(name=name)
            await connection.request(MetadataRequest(topics=[wanted]))
        while True:
            names = {t.name for t in (await other.request(MetadataRequest(topics=None))).topics}
            if "created" in names:
                break
        assert names == {"a", "created"}
        for connection in (greedy, other):
            await connection.close()


async def test_partitions_and_deletions_count_as_well() -> None:
    async with running_node(settings=SETTINGS) as node:
        setup = await connect(node, "setup")
        await setup.request(create("a", 1))
        await setup.request(create("b", 1))
        await limit(node, "greedy")
        greedy = await connect(node, "greedy")
        added = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=201, assignments=None)
        request = CreatePartitionsRequest(topics=[added], timeout_ms=5_000)
        assert (await greedy.request(request)).results[0].error_code == ErrorCode.NONE
        doomed = [DeleteTopicsRequest.DeleteTopicState(name="b")]
        deleted = await greedy.request(DeleteTopicsRequest(topics=doomed, timeout_ms=5_000))
        assert deleted.responses[0].error_code == REFUSED
        assert deleted.throttle_time_ms > 0
        names = {t.name for t in (await setup.request(MetadataRequest(topics=None))).topics}
        assert names == {"a", "b"}
        for connection in (greedy, setup):
            await connection.close()
