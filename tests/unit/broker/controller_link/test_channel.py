"""The channel to the active controller: the connections that it keeps and closes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.controller_link.channel import ControllerChannel, ControllerUnavailable
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.transport.client import Connection
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from protocol.transport.server import Server
from runtime.clock import SystemClock

BEAT = BrokerHeartbeatRequest(broker_id=1)
TIMEOUT_MS = 5_000.0


class Controller:
    """A node that answers heartbeats at once, never, or with NOT_CONTROLLER."""

    def __init__(self) -> None:
        self.active = True
        self.hangs = False
        self.peers: list[int] = []
        self.asked = asyncio.Event()
        table = HandlerTable()
        table.serve_api_versions()
        table.register(ApiKey.BROKER_HEARTBEAT, self.handle)
        self.server = Server(table, clock=SystemClock(), listener="CONTROLLER")

    def handle(self, context: RequestContext, request: BrokerHeartbeatRequest) -> Reply:
        self.peers.append(context.connection.id)
        self.asked.set()
        if self.hangs:
            return asyncio.get_running_loop().create_future()
        code = ErrorCode.NONE if self.active else ErrorCode.NOT_CONTROLLER
        return BrokerHeartbeatResponse(error_code=code)


class World:
    def __init__(self, controllers: list[Controller]) -> None:
        self.controllers = controllers
        self.leader: int | None = 0
        self.lost = 0
        self.was_lost = asyncio.Event()
        self.channel = ControllerChannel(
            self.endpoint, client_id="c", clock=SystemClock(), rng=random.Random(1)
        )
        self.channel.on_lost(self.count)

    def endpoint(self) -> tuple[str, int] | None:
        return None if self.leader is None else self.controllers[self.leader].server.address

    def count(self) -> None:
        self.lost += 1
        self.was_lost.set()

    def lead(self, leader: int | None) -> None:
        self.leader = leader
        self.channel.controller_moved()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    controllers = [Controller(), Controller()]
    for controller in controllers:
        await controller.server.start("127.0.0.1", 0)
    made = World(controllers)
    try:
        yield made
    finally:
        await made.channel.close()
        for controller in controllers:
            await controller.server.close(grace_ms=0)


async def test_one_connection_for_all_requests() -> None:
    async with world() as w:
        for _ in range(3):
            await w.channel.request(BEAT, TIMEOUT_MS)
        assert len(set(w.controllers[0].peers)) == 1


async def test_a_leader_that_is_not_known_for_a_while_costs_no_connection() -> None:
    """A broker that learns late from the quorum must not look dead to the controller."""
    async with world() as w:
        await w.channel.request(BEAT, TIMEOUT_MS)
        w.lead(None)
        await w.channel.request(BEAT, TIMEOUT_MS)
        w.lead(0)
        await w.channel.request(BEAT, TIMEOUT_MS)
        assert len(w.controllers[0].peers) == 3
        assert len(set(w.controllers[0].peers)) == 1
        assert w.lost == 0


async def test_channel_without_controller_raises_unavailable() -> None:
    async with world() as w:
        w.lead(None)
        with pytest.raises(ControllerUnavailable):
            await w.channel.request(BEAT, TIMEOUT_MS)


async def test_channel_abandons_hanging_controller_after_new_leader() -> None:
    async with world() as w:
        w.controllers[0].hangs = True
        hanging = asyncio.ensure_future(w.channel.request(BEAT, TIMEOUT_MS))
        await w.controllers[0].asked.wait()
        w.lead(None)
        await asyncio.sleep(0)
        assert not hanging.done()
        w.lead(1)
        with pytest.raises(ControllerUnavailable):
            await hanging
        await w.channel.request(BEAT, TIMEOUT_MS)
        assert len(w.controllers[1].peers) == 1


async def test_a_node_that_is_not_the_controller_is_left_at_once() -> None:
    async with world() as w:
        await w.channel.request(BEAT, TIMEOUT_MS)
        w.controllers[0].active = False
        w.lead(None)
        with pytest.raises(ControllerUnavailable, match="not the active controller"):
            await w.channel.request(BEAT, TIMEOUT_MS)
        with pytest.raises(ControllerUnavailable, match="no active controller"):
            await w.channel.request(BEAT, TIMEOUT_MS)
        assert w.lost == 0, "given up from here"


async def test_channel_reports_lost_connection_once() -> None:
    async with world() as w:
        await w.channel.request(BEAT, TIMEOUT_MS)
        await w.controllers[0].server.close(grace_ms=0)
        await w.was_lost.wait()
        with pytest.raises(ControllerUnavailable):
            await w.channel.request(BEAT, TIMEOUT_MS)
        assert w.lost == 1


async def test_channel_closed_while_connecting_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt to connect belongs to the open channel: its connection would never be closed."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    made: list[Connection] = []
    connect = Connection.connect

    async def held(*args: Any, **options: Any) -> Connection:
        begun.set()
        await go_on.wait()
        made.append(await connect(*args, **options))
        return made[0]

    monkeypatch.setattr(Connection, "connect", held)
    async with world() as w:
        request = asyncio.ensure_future(w.channel.request(BEAT, TIMEOUT_MS))
        await begun.wait()
        await w.channel.close()
        go_on.set()
        with pytest.raises(ControllerUnavailable, match="closed"):
            await request
        assert made[0].is_closed
        assert w.controllers[0].peers == []
