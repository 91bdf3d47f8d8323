"""Sender of a queue's requests: its backoff ends with the controller that caused it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.queue_sender import QueueSender
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from protocol.transport.server import Server
from runtime.clock import SystemClock
from runtime.log import get_logger
from runtime.tasks import Supervisor

BACK_OFF_MS = 3_600_000.0


class Queue:
    """One request, with an hour of backoff after each failure."""

    def __init__(self) -> None:
        self.due: float | None = 0.0
        self.failures = 0
        self.failed_once = asyncio.Event()
        self.done = asyncio.Event()

    def due_ms(self) -> float | None:
        return self.due

    def next_request(self, now_ms: float) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(broker_id=1)

    def failed(self, now_ms: float) -> None:
        self.failures += 1
        self.due = now_ms + BACK_OFF_MS
        self.failed_once.set()

    def controller_moved(self) -> None:
        self.due = 0.0

    def answered(self, response: Any, now_ms: float) -> None:
        self.due = None
        self.done.set()


class World:
    """A sender whose controller is `active` or hangs."""

    def __init__(self) -> None:
        self.active = True
        self.known = False
        self.asked = asyncio.Event()
        table = HandlerTable()
        table.serve_api_versions()
        table.register(ApiKey.BROKER_HEARTBEAT, self.handle)
        self.server = Server(table, clock=SystemClock(), listener="CONTROLLER")
        self.queue = Queue()
        self.address: tuple[str, int] | None = None
        self.channel = ControllerChannel(
            lambda: self.address, client_id="c", clock=SystemClock(), rng=random.Random(1)
        )
        self.sender = QueueSender(
            "tests",
            self.queue,
            next_request=self.queue.next_request,
            answered=self.queue.answered,
            channel=self.channel,
            clock=SystemClock(),
            supervisor=Supervisor(),
            log=get_logger("test"),
        )

    def handle(self, context: RequestContext, request: BrokerHeartbeatRequest) -> Reply:
        self.asked.set()
        if not self.active:
            return asyncio.get_running_loop().create_future()
        return BrokerHeartbeatResponse(error_code=ErrorCode.NONE)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    await made.server.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(10.0):
            yield made
    finally:
        made.sender.close()
        await made.channel.close()
        await made.server.close(grace_ms=0)


async def test_sender_in_backoff_sends_at_once_to_the_next_controller() -> None:
    """A timer belongs to the state that set it: the failures without a
    controller do not delay the first request to the next one."""
    async with world() as w:
        w.sender.wake()
        await w.queue.failed_once.wait()
        w.address = w.server.address
        w.channel.controller_moved()
        await w.queue.done.wait()
        assert w.queue.failures == 1


async def test_sender_whose_request_ends_with_its_controller_sends_at_once_to_the_next() -> None:
    """The move fails the request in flight. The backoff after that failure belongs to the
    controller that is gone."""
    async with world() as w:
        w.active = False
        w.address = w.server.address
        w.sender.wake()
        await w.asked.wait()
        w.active = True
        other = Server(w.server.handlers, clock=SystemClock(), listener="CONTROLLER")
        await other.start("127.0.0.1", 0)
        try:
            w.address = other.address
            w.channel.controller_moved()
            await w.queue.done.wait()
            assert w.queue.failures == 1
        finally:
            await w.channel.close()
            await other.close(grace_ms=0)


async def test_sender_in_backoff_with_the_same_controller_waits() -> None:
    """A failure of the present controller is followed by the whole backoff."""
    async with world() as w:
        w.sender.wake()
        await w.queue.failed_once.wait()
        w.sender.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert w.queue.failures == 1
        assert not w.queue.done.is_set()
