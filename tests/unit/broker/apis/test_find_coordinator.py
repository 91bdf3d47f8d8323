"""FindCoordinator: the location of a group's coordinator, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from broker.apis import find_coordinator
from broker.apis.find_coordinator import (
    NO_TRANSACTIONS,
    FindCoordinator,
    KeyType,
)
from broker.coordinators.cached_topics import CoordinatorAddress
from broker.coordinators.partitioner import partition_for
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.transport.dispatch import HandlerTable
from runtime import log
from runtime.clock import ManualClock
from testkit.memory.group_coordinator import PARTITIONS, FakeLog


class CreatingLog(FakeLog):
    def __init__(self) -> None:
        super().__init__()
        self.created = 0
        self.error: Exception | None = None

    async def ensure_topic(self) -> None:
        self.created += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.count = PARTITIONS


class Directory:
    """A directory in which node 10 + p leads partition p, reachable on one listener only."""

    def leader_address(self, partition: int, listener: str) -> CoordinatorAddress | None:
        if listener != "PLAINTEXT":
            return None
        return CoordinatorAddress(10 + partition, f"host{partition}", 9092)


class Api:
    def __init__(self) -> None:
        self.log = CreatingLog()
        handler = FindCoordinator(self.log, Directory(), ManualClock())
        table = HandlerTable()
        find_coordinator.register(table, handler)
        self.handle = table.entries[ApiKey.FIND_COORDINATOR].handler

    async def ask(
        self, version: int, *keys: str, key_type: int = 0, listener: str = "PLAINTEXT"
    ) -> FindCoordinatorResponse:
        request = FindCoordinatorRequest(key_type=key_type)
        if version < 4:
            (request.key,) = keys
        else:
            request.coordinator_keys = list(keys)
        context: Any = _Context(version, listener)
        reply: Any = self.handle(context, request)
        response = await reply if isinstance(reply, Awaitable) else reply
        assert isinstance(response, FindCoordinatorResponse)
        assert encode(response, version)
        return response


class _Context:
    client_id = "c"
    client_host = "127.0.0.1"

    def __init__(self, api_version: int, listener: str) -> None:
        self.api_version = api_version
        self.listener = listener


@pytest.mark.parametrize("version", range(4))
async def test_one_group(version: int) -> None:
    response = await Api().ask(version, "g")
    home = partition_for("g", PARTITIONS)
    assert (response.error_code, response.node_id) == (ErrorCode.NONE, 10 + home)
    assert (response.host, response.port) == (f"host{home}", 9092)
    assert response.error_message == "NONE"


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_several_groups(version: int) -> None:
    response = await Api().ask(version, "g", "h", "")
    assert [(each.key, each.node_id, each.error_code) for each in response.coordinators] == [
        (key, 10 + partition_for(key, PARTITIONS), ErrorCode.NONE) for key in ("g", "h", "")
    ]
    assert {each.error_message for each in response.coordinators} == {""}


async def test_the_listener_of_the_client_counts() -> None:
    response = await Api().ask(3, "g", listener="OTHER")
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (response.node_id, response.host, response.port) == (-1, "", -1)


async def test_the_first_question_creates_the_topic() -> None:
    api = Api()
    api.log.count = None
    response = await api.ask(4, "g")
    assert response.coordinators[0].error_code == ErrorCode.NONE
    await api.ask(4, "g")
    assert api.log.created == 1


async def test_the_topic_cannot_be_created() -> None:
    api = Api()
    api.log.count = None
    api.log.error = ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 replicas, 1 broker")
    for version in (0, 2, 6):
        response = await api.ask(version, "g")
        shown: Any = response if version < 4 else response.coordinators[0]
        assert shown.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "3 replicas, 1 broker" in shown.error_message


async def test_a_controller_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_coordinator, "CREATION_WAIT_S", 0)
    api = Api()
    api.log.count = None
    response = await api.ask(1, "g")
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", [1, 3, 4, 6])
async def test_transactions_are_refused_for_good(version: int) -> None:
    response = await Api().ask(version, "t", key_type=KeyType.TRANSACTION)
    shown: Any = response if version < 4 else response.coordinators[0]
    assert shown.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert shown.error_message == NO_TRANSACTIONS


@pytest.mark.parametrize("key_type", [KeyType.SHARE, 3, -1])
async def test_other_kinds_are_invalid(key_type: int) -> None:
    response = await Api().ask(6, "k", key_type=key_type)
    assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_one_log_line_per_transactional_id() -> None:
    written: list[bytes] = []
    log.configure(write=written.append)
    api = Api()
    try:
        for _ in range(5):
            await api.ask(4, "t1", "t2", key_type=KeyType.TRANSACTION)
    finally:
        log.configure()
    assert len([line for line in written if b"transactional" in line]) == 2
