"""Requests to the coordinator of a group while it moves, loads or fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from client import retries
from client.cluster_client import ClusterClient
from client.errors import Refused
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.server import Server
from runtime.clock import SystemClock

GROUP = "g"
HEARTBEAT = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")


class World:
    """Two brokers, one of which coordinates. `found` and `codes` are answers that come first."""

    def __init__(self) -> None:
        self.servers: dict[int, Server] = {}
        self.coordinator = 0
        self.found: list[ErrorCode] = []
        self.codes: list[ErrorCode] = []
        self.lookups = 0
        self.asked: list[int] = []

    def table(self, node_id: int) -> HandlerTable:
        def metadata(_: RequestContext, __: MetadataRequest) -> MetadataResponse:
            brokers = [
                MetadataResponse.MetadataResponseBroker(
                    node_id=one, host=server.address[0], port=server.address[1]
                )
                for one, server in self.servers.items()
            ]
            return MetadataResponse(brokers=brokers)

        def find(_: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            self.lookups += 1
            code = self.found.pop(0) if self.found else ErrorCode.NONE
            one = FindCoordinatorResponse.Coordinator(
                key=request.coordinator_keys[0],
                node_id=-1 if code else self.coordinator,
                error_code=code,
            )
            return FindCoordinatorResponse(coordinators=[one])

        def heartbeat(_: RequestContext, __: HeartbeatRequest) -> HeartbeatResponse:
            self.asked.append(node_id)
            code = self.codes.pop(0) if self.codes else ErrorCode.NONE
            if node_id != self.coordinator:
                code = ErrorCode.NOT_COORDINATOR
            return HeartbeatResponse(error_code=code)

        table = HandlerTable()
        table.serve_api_versions()
        table.register(ApiKey.METADATA, metadata)
        table.register(ApiKey.FIND_COORDINATOR, find)
        table.register(ApiKey.HEARTBEAT, heartbeat)
        return table


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[World, ClusterClient]]:
    world = World()
    for node_id in (0, 1):
        server = Server(world.table(node_id), clock=SystemClock(), listener="PLAINTEXT")
        await server.start("127.0.0.1", 0)
        world.servers[node_id] = server
    addresses = [server.address for server in world.servers.values()]
    try:
        async with await ClusterClient.connect(addresses) as client:
            yield world, client
    finally:
        for server in world.servers.values():
            await server.close(grace_ms=0)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_WAIT_MS", 1.0)


async def test_coordinator_is_looked_up_once() -> None:
    async with cluster() as (world, client):
        for _ in range(3):
            answer = await client.request_coordinator(GROUP, HEARTBEAT)
            assert answer.error_code == ErrorCode.NONE
        assert (world.asked, world.lookups) == ([0, 0, 0], 1)


async def test_coordinator_after_move_is_looked_up_again() -> None:
    async with cluster() as (world, client):
        await client.request_coordinator(GROUP, HEARTBEAT)
        world.coordinator = 1
        await client.request_coordinator(GROUP, HEARTBEAT)
        assert (world.asked, world.lookups) == ([0, 0, 1], 2)


async def test_coordinator_that_loads_is_retried() -> None:
    async with cluster() as (world, client):
        world.found = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        world.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        answer = await client.request_coordinator(GROUP, HEARTBEAT)
        assert answer.error_code == ErrorCode.NONE
        assert (len(world.asked), world.lookups) == (3, 5)


async def test_coordinator_after_death_is_replaced_by_successor() -> None:
    async with cluster() as (world, client):
        await client.request_coordinator(GROUP, HEARTBEAT)
        await world.servers[0].close(grace_ms=0)
        world.coordinator = 1
        await client.request_coordinator(GROUP, HEARTBEAT)
        assert world.asked == [0, 1]


async def test_other_errors_are_the_callers() -> None:
    async with cluster() as (world, client):
        world.codes = [ErrorCode.UNKNOWN_MEMBER_ID]
        answer = await client.request_coordinator(GROUP, HEARTBEAT)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert len(world.asked) == 1


async def test_coordinator_that_keeps_failing_raises_refused() -> None:
    async with cluster() as (world, client):
        world.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
        with pytest.raises(Refused, match="g: COORDINATOR_LOAD_IN_PROGRESS"):
            await client.request_coordinator(GROUP, HEARTBEAT, 30.0)
        world.found = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(Refused, match="group g: GROUP_AUTHORIZATION_FAILED"):
            await client.request_coordinator(GROUP, HEARTBEAT)
