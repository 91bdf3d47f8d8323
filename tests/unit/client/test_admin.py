"""The admin client against a node in memory, as tools use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.admin import (
    Admin,
    ConfigChange,
    ConfigOperation,
    NewTopic,
    ResourceType,
    owners_of,
)
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from client.errors import Refused
from client.group_member import GroupMember
from client.offsets import commit, committed, offsets_at
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from testkit.memory.node import running_node


@asynccontextmanager
async def administered() -> AsyncIterator[tuple[ClusterClient, Admin]]:
    async with (
        running_node() as node,
        await ClusterClient.connect(node.client_addresses()[0]) as client,
    ):
        yield client, Admin(client)


async def test_topics() -> None:
    async with administered() as (client, admin):
        wanted = [NewTopic("a", 2, 1, {"retention.ms": "7"}), NewTopic("b", replicas={0: [1]})]
        created = await admin.create_topics(wanted)
        assert [(one.name, one.num_partitions) for one in created] == [("a", 2), ("b", 1)]
        more = [*wanted, NewTopic("c")]
        with pytest.raises(Refused, match="a: TOPIC_ALREADY_EXISTS"):
            await admin.create_topics(more)
        assert await admin.create_topics(more, exist_ok=True) == []
        await client.topic("c", is_new=True)
        await admin.create_partitions("a", 4, [[1], [1]])
        with pytest.raises(Refused, match="a: INVALID_PARTITIONS"):
            await admin.create_partitions("a", 4)
        assert await admin.delete_topic("b") is True
        assert await admin.delete_topic("b", missing_ok=True) is False
        with pytest.raises(Refused, match="b: UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.delete_topic("b")


async def test_a_new_topic_has_leaders_and_is_described() -> None:
    async with administered() as (_, admin):
        await admin.create_topic("t", 3)
        (topic,) = await admin.describe_topics()
        assert topic.name == "t"
        assert [one.leader_id for one in topic.partitions] == [1, 1, 1]


async def test_configurations() -> None:
    async with administered() as (_, admin):
        await admin.create_topic("t")
        topic, broker = ResourceType.TOPIC, ResourceType.BROKER
        changes = [
            ConfigChange("retention.ms", ConfigOperation.SET, "7"),
            ConfigChange("cleanup.policy", ConfigOperation.APPEND, "compact"),
        ]
        await admin.alter_configs(topic, "t", changes, validate_only=True)
        values = {one.name: one.value for one in (await admin.describe_configs(topic, ["t"]))["t"]}
        assert values["retention.ms"] != "7"
        await admin.alter_configs(topic, "t", changes)
        values = {one.name: one.value for one in (await admin.describe_configs(topic, ["t"]))["t"]}
        assert (values["retention.ms"], values["cleanup.policy"]) == ("7", "delete,compact")
        with pytest.raises(Refused, match="t: INVALID_CONFIG"):
            await admin.alter_configs(
                topic, "t", [ConfigChange("no.such.key", ConfigOperation.SET, "1")]
            )
        with pytest.raises(Refused, match="nothing: UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_configs(topic, ["nothing"])
        # The broker's own configuration, from that broker, and the default of all brokers.
        described = await admin.describe_configs(broker, ["1", ""], documentation=True)
        static = {one.name: one for one in described["1"]}
        assert static["node.id"].value == "1"
        assert static["log.dirs"].documentation
        assert "" in described
        with pytest.raises(Refused) as caught:
            await admin.describe_configs(ResourceType.GROUP, [""])
        assert caught.value.code is not ErrorCode.NONE


class Asked:
    """A stand-in for a client that records the broker and the resources of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, list[str]]] = []

    async def find_broker(self, *_: Any) -> None:
        return None

    async def request_any(self, request: Any, _: float) -> Any:
        return await self.request_broker(None, request, _)

    async def request_broker(self, node_id: int | None, request: Any, _: float) -> Any:
        self.asked.append((node_id, [one.resource_name for one in request.resources]))
        if isinstance(request, DescribeConfigsRequest):
            return DescribeConfigsResponse(results=[])
        one = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse()
        return IncrementalAlterConfigsResponse(responses=[one])


async def test_admin_broker_configs_are_requested_from_that_broker() -> None:
    client = Asked()
    admin = Admin(client)  # type: ignore[arg-type]
    await admin.describe_configs(ResourceType.BROKER, ["1", "", "3"])
    await admin.describe_configs(ResourceType.BROKER_LOGGER, ["2"])
    await admin.describe_configs(ResourceType.TOPIC, ["4", "5"])
    # A stored change goes to the controller, a logger's level does not.
    change = ConfigChange("k", ConfigOperation.DELETE, None)
    await admin.alter_configs(ResourceType.BROKER, "1", [change])
    await admin.alter_configs(ResourceType.BROKER_LOGGER, "2", [change])
    assert client.asked == [
        (1, ["1"]),
        (None, [""]),
        (3, ["3"]),
        (2, ["2"]),
        (None, ["4", "5"]),
        (None, ["1"]),
        (2, ["2"]),
    ]


async def test_groups() -> None:
    async with administered() as (client, admin):
        await admin.create_topic("t", 2)
        assert (await admin.describe_group("g")).group_state == "Dead"
        async with GroupMember(client, "g", ["t"]) as member:
            described = await admin.describe_group("g")
            assert owners_of(described.members) == {
                ("t", 0): member.member_id,
                ("t", 1): member.member_id,
            }
            with pytest.raises(Refused, match="g: NON_EMPTY_GROUP"):
                await admin.delete_group("g")
            with pytest.raises(Refused, match="t-0: GROUP_SUBSCRIBED_TO_TOPIC"):
                await admin.delete_offsets("g", [("t", 0)])
        await commit(client, "g", {("t", 0): 0, ("t", 1): 0})
        await admin.delete_offsets("g", [("t", 0)])
        assert await committed(client, "g") == {("t", 1): 0}
        assert [one.group_id for one in await admin.list_groups()] == ["g"]
        await admin.delete_group("g")
        assert await admin.list_groups() == []


async def test_list_groups_retries_coordinator_that_is_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with administered() as (client, admin):
        await admin.create_topic("t", 1)
        await commit(client, "g", {("t", 0): 0})
        ask, codes = client.request_broker, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

        async def loading(node_id: int, message: Any, timeout_ms: float) -> Any:
            answer = await ask(node_id, message, timeout_ms)
            if codes:
                answer.error_code = codes.pop()
            return answer

        monkeypatch.setattr(client, "request_broker", loading)
        assert [one.group_id for one in await admin.list_groups()] == ["g"]
        codes.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"):
            await admin.list_groups()


async def test_leaders_replicas_and_the_quorum() -> None:
    async with administered() as (_, admin):
        await admin.create_topic("t", 2)
        every = [("t", 0), ("t", 1), ("t", 7)]
        found = await admin.elect_leaders(ElectionType.PREFERRED, every)
        assert [(one, found[one].error, found[one].failed) for one in every] == [
            (("t", 0), ErrorCode.ELECTION_NOT_NEEDED, False),
            (("t", 1), ErrorCode.ELECTION_NOT_NEEDED, False),
            (("t", 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ]
        # Of all partitions, those that need no election are omitted.
        assert await admin.elect_leaders(ElectionType.UNCLEAN) == {}
        await admin.reassign(("t", 0), None)
        with pytest.raises(Refused, match="t-0: INVALID_REPLICA_ASSIGNMENT"):
            await admin.reassign(("t", 0), [99])
        quorum = (await admin.describe_quorum()).topics[0].partitions[0]
        assert (quorum.leader_id, [one.replica_id for one in quorum.current_voters]) == (1, [1])


async def test_partitions_that_are_gone_may_be_left_out() -> None:
    async with administered() as (client, admin):
        await admin.create_topic("t")
        asked = [("t", 0), ("t", 5), ("gone", 0)]
        assert await offsets_at(client, asked, -2, missing_ok=True) == {("t", 0): 0}
