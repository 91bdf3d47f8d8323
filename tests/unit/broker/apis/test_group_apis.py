"""Group handlers on top of the coordinator: versions, several groups, loading.

The effect of each request on a group is tested with the core, and against Kafka in tests/golden.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages import request_class, response_class
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.transport.dispatch import HandlerTable
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import (
    GROUP,
    HOME,
    PARTITIONS,
    Driver,
)
from testkit.memory.group_shard import A_ID, B_ID, TOPICS

MODULES: list[Any] = [join_group, sync_group, heartbeat, leave_group]
MODULES += [list_groups, describe_groups, delete_groups]
OFFSET_MODULES: list[Any] = [offset_commit, offset_fetch, offset_delete]
ELSEWHERE = "elsewhere"
UNKNOWN_ID = b"?" * 16


class Apis:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.table = HandlerTable()
        for module in MODULES:
            module.register(self.table, driver.coordinator)
        for module in OFFSET_MODULES:
            module.register(self.table, driver.coordinator, TOPICS)

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request as if it had arrived in this version."""
        api = ApiKey(type(request).API_KEY)
        decoded, _ = decode(request_class(api), encode(request, version), version)
        context = SimpleNamespace(api_version=version, client_id="c", client_host="h")
        reply: Any = self.table.entries[api].handler(context, decoded)  # type: ignore[arg-type]
        response = reply
        if asyncio.isfuture(reply) or asyncio.iscoroutine(reply):
            response = await reply
        read, _ = decode(response_class(api), encode(response, version), version)
        return read

    async def commit(self, version: int, *, offset: int = 5, partition: int = 0) -> Any:
        by_id = version >= 10
        asked = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[asked])
        if by_id:
            topic.topic_id = A_ID
        else:
            topic.name = "a"
        return await self.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), version)


@pytest.fixture
async def apis() -> AsyncIterator[Apis]:
    driver = await Driver().start()
    yield Apis(driver)
    await driver.stop()


def fetch_request(version: int, *topics: tuple[Any, int], group: str = GROUP) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id=group,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[index])
                for name, index in topics
            ],
        )
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group)
    for which, index in topics:
        field = "topic_id" if version >= 10 else "name"
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=[index])
        setattr(topic, field, which)
        asked.topics = [*(asked.topics or ()), topic]
    return OffsetFetchRequest(groups=[asked])


def test_group_api_docstrings_name_registered_versions(apis: Apis) -> None:
    for module in MODULES + OFFSET_MODULES:
        first, last = module.MIN_VERSION, module.MAX_VERSION
        versions = f"version {first}" if first == last else f"versions {first}-{last}"
        api = next(
            entry
            for entry in apis.table.entries.values()
            if entry.handler.__module__ == module.__name__
        )
        assert (api.version_min, api.version_max) == (first, last)
        assert f"(key {int(api.api)}), {versions}" in module.__doc__


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit_and_fetch_in_every_version(apis: Apis, version: int) -> None:
    response = await apis.commit(version)
    (topic,) = response.topics
    assert (topic.name, topic.topic_id) == (("a", bytes(16)) if version < 10 else ("", A_ID))
    assert topic.partitions[0].error_code == ErrorCode.NONE
    which = A_ID if version >= 10 else "a"
    fetched = await apis.ask(fetch_request(version, (which, 0)), version)
    (topic,) = fetched.topics if version < 8 else fetched.groups[0].topics
    assert topic.partitions[0].committed_offset == 5


async def test_fetch_by_topic_id(apis: Apis) -> None:
    await apis.commit(10)
    response = await apis.ask(fetch_request(10, (A_ID, 0), (B_ID, 0), (UNKNOWN_ID, 0)), 10)
    shown = [
        (topic.topic_id, topic.partitions[0].committed_offset, topic.partitions[0].error_code)
        for topic in response.groups[0].topics
    ]
    assert shown == [
        (A_ID, 5, ErrorCode.NONE),
        (B_ID, -1, ErrorCode.NONE),
        (UNKNOWN_ID, -1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_fetch_all_by_topic_id_leaves_out_topics_without_one(
    apis: Apis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apis.commit(9)
    everything = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    )
    response = await apis.ask(everything, 10)
    assert [topic.topic_id for topic in response.groups[0].topics] == [A_ID]
    monkeypatch.setattr(TOPICS, "topics", {})
    response = await apis.ask(everything, 10)
    assert response.groups[0].topics == []


async def test_each_group_of_a_fetch_has_its_own_error(apis: Apis) -> None:
    await apis.commit(9)
    groups = [
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
        for name in (GROUP, ELSEWHERE)
    ]
    response = await apis.ask(OffsetFetchRequest(groups=groups), 9)
    assert [(each.group_id, each.error_code) for each in response.groups] == [
        (GROUP, ErrorCode.NONE),
        (ELSEWHERE, ErrorCode.NOT_COORDINATOR),
    ]


async def test_errors_of_a_group_before_and_after_version_2(apis: Apis) -> None:
    old = await apis.ask(fetch_request(1, ("a", 0), group=ELSEWHERE), 1)
    assert old.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert old.topics[0].partitions[0].committed_offset == -1
    new = await apis.ask(fetch_request(2, ("a", 0), group=ELSEWHERE), 2)
    assert (new.error_code, new.topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_commit_elsewhere(apis: Apis) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=3)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[partition])
    request = OffsetCommitRequest(group_id=ELSEWHERE, topics=[topic])
    response = await apis.ask(request, 9)
    answer = response.topics[0].partitions[0]
    assert (answer.partition_index, answer.error_code) == (3, ErrorCode.NOT_COORDINATOR)


async def test_groups_are_not_listed_by_halves(apis: Apis) -> None:
    await apis.commit(9)
    listed = await apis.ask(ListGroupsRequest(), 5)
    assert [each.group_id for each in listed.groups] == [GROUP]
    apis.driver.log.gate = asyncio.Event()
    apis.driver.coordinator.runtime.elected((HOME + 1) % PARTITIONS, 1)
    listed = await apis.ask(ListGroupsRequest(), 5)
    assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    apis.driver.log.gate.set()
    await settle()
    assert (await apis.ask(ListGroupsRequest(), 0)).error_code == ErrorCode.NONE


async def test_delete_several_groups_and_wait_for_all(apis: Apis) -> None:
    await apis.commit(9)
    apis.driver.log.hold = True
    request = DeleteGroupsRequest(groups_names=[ELSEWHERE, GROUP, "x" * 3])
    answer = asyncio.ensure_future(apis.ask(request, 2))
    await settle()
    assert not answer.done()
    apis.driver.log.pending[0].set_result(None)
    results = [(each.group_id, each.error_code) for each in (await answer).results]
    assert results[:2] == [(ELSEWHERE, ErrorCode.NOT_COORDINATOR), (GROUP, ErrorCode.NONE)]


async def test_describe_groups_returns_authorized_operations(apis: Apis) -> None:
    request = DescribeGroupsRequest(groups=[GROUP, ELSEWHERE], include_authorized_operations=True)
    await apis.commit(9)
    for version in (3, 5, 6):
        here, elsewhere = (await apis.ask(request, version)).groups
        assert here.authorized_operations == 3400
        assert elsewhere.error_code == ErrorCode.NOT_COORDINATOR
        assert elsewhere.authorized_operations == -(2**31)
