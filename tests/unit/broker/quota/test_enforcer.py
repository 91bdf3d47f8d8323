"""Quotas as a stage before the handlers of a broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from broker.quota.enforcer import QuotaEnforcer
from broker.quota.quotas import ClientQuotas
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.transport.dispatch import CloseConnection, EncodedReply, HandlerTable, RequestContext
from runtime.clock import ManualClock
from testkit.memory.broker import Peer
from testkit.memory.stages import through

CLIENT = (("client-id", "c"),)
PRODUCE = {CLIENT: {"producer_byte_rate": 1000.0}}
WORK = {CLIENT: {"request_percentage": 10.0}}


class Place:
    """A table with slow handlers, and its enforcer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = HandlerTable()
        self.peer = Peer()
        self.work_ms = 0.0
        self.reply: Any = None
        for api in (ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.METADATA):
            self.table.register(api, self._handle)
        self.table.register(ApiKey.LIST_GROUPS, self._handle_later)
        self.quotas = ClientQuotas()
        self.enforcer = QuotaEnforcer(self.quotas, self.table, self.clock)

    def _handle(self, context: RequestContext, request: Any) -> Any:
        self.clock.advance(self.work_ms)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    async def _handle_later(self, context: RequestContext, request: Any) -> Any:
        return self.reply

    def ask(
        self, api: ApiKey, request: Any, version: int, size: int = 0, client_id: str | None = "c"
    ) -> Any:
        context = RequestContext(
            self.peer, api, version, 1, client_id, 0.0, "User:ANONYMOUS", "h", "L", size
        )
        return through(self.table, context, request)


@pytest.fixture
def place() -> Iterator[Place]:
    yield Place()


def test_without_quotas_nothing_stands_in_between(place: Place) -> None:
    place.enforcer.publish({})
    assert place.table.stages == ()
    place.enforcer.publish(PRODUCE)
    assert place.table.stages == (place.enforcer,)
    place.enforcer.publish(WORK)
    assert place.table.stages == (place.enforcer,)
    place.enforcer.publish({})
    assert place.table.stages == ()


def test_produced_bytes_are_counted(place: Place) -> None:
    place.enforcer.publish(PRODUCE)
    place.reply = ProduceResponse()
    request = ProduceRequest(acks=1)
    assert place.ask(ApiKey.PRODUCE, request, 9, 10_000).throttle_time_ms == 0
    assert place.peer.muted_ms == []
    place.reply = ProduceResponse()
    answer = place.ask(ApiKey.PRODUCE, request, 9, 5_000)
    assert answer.throttle_time_ms == 5_000
    assert place.peer.muted_ms == [5_000]
    place.reply = ProduceResponse()
    assert place.ask(ApiKey.PRODUCE, request, 9, 9, client_id="d").throttle_time_ms == 0


def test_a_client_without_acks_is_muted_without_a_word(place: Place) -> None:
    place.enforcer.publish(PRODUCE)
    assert place.ask(ApiKey.PRODUCE, ProduceRequest(acks=0), 9, 15_000) is None
    assert place.peer.muted_ms == [5_000]


async def test_a_client_without_acks_is_muted_while_its_batch_waits_to_be_judged(
    place: Place,
) -> None:
    place.enforcer.publish(PRODUCE)
    place.reply = asyncio.get_running_loop().create_future()
    waiting = place.ask(ApiKey.PRODUCE, ProduceRequest(acks=0), 9, 15_000)
    assert place.peer.muted_ms == [5_000]
    place.reply.set_result(None)
    assert await waiting is None
    assert place.peer.muted_ms == [5_000]


def test_work_is_counted_for_every_request(place: Place) -> None:
    place.enforcer.publish(WORK)
    place.work_ms = 500.0
    place.reply = HeartbeatResponse()
    assert place.ask(ApiKey.HEARTBEAT, HeartbeatRequest(), 4).throttle_time_ms == 0
    place.work_ms = 600.0
    place.reply = HeartbeatResponse()
    answer = place.ask(ApiKey.HEARTBEAT, HeartbeatRequest(), 4)
    # 110 % of a second over 10.6 s, where 10 % are allowed.
    assert answer.throttle_time_ms == 400 == place.peer.muted_ms[0]


def test_version_without_throttle_time_is_muted(place: Place) -> None:
    place.enforcer.publish(WORK)
    place.work_ms = 5_000.0
    place.reply = HeartbeatResponse()
    assert place.ask(ApiKey.HEARTBEAT, HeartbeatRequest(), 0).throttle_time_ms == 0
    assert place.peer.muted_ms == [1_000]


def test_an_encoded_response_is_patched_where_it_begins_with_the_time(place: Place) -> None:
    place.enforcer.publish(WORK)
    place.work_ms = 5_000.0
    place.reply = EncodedReply([memoryview(bytes(4) + b"rest"), b"more"])
    answer = place.ask(ApiKey.METADATA, MetadataRequest(), 12)
    assert b"".join(answer.parts) == struct.pack(">i", 1_000) + b"restmore"
    old = place.ask(ApiKey.METADATA, MetadataRequest(), 2)
    assert b"".join(old.parts) == bytes(4) + b"restmore"


async def test_a_reply_that_waits_is_finished_when_it_comes(place: Place) -> None:
    place.enforcer.publish(PRODUCE)
    place.reply = asyncio.get_running_loop().create_future()
    waiting = place.ask(ApiKey.PRODUCE, ProduceRequest(acks=-1), 9, 15_000)
    assert place.peer.muted_ms == []
    place.reply.set_result(ProduceResponse())
    assert (await waiting).throttle_time_ms == 5_000


async def test_pending_reply_that_fails_or_is_cancelled_is_not_muted(place: Place) -> None:
    place.enforcer.publish(PRODUCE)
    loop = asyncio.get_running_loop()
    place.reply = loop.create_future()
    waiting = place.ask(ApiKey.PRODUCE, ProduceRequest(acks=-1), 9)
    place.reply.set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    with pytest.raises(ApiError):
        await waiting
    place.reply = loop.create_future()
    waiting = place.ask(ApiKey.PRODUCE, ProduceRequest(acks=-1), 9)
    place.reply.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert place.peer.muted_ms == []


async def test_handlers_that_are_tasks(place: Place) -> None:
    place.enforcer.publish(WORK)
    place.reply = HeartbeatResponse()
    assert place.table.entries[ApiKey.LIST_GROUPS].is_async
    reply = place.ask(ApiKey.LIST_GROUPS, None, 3)
    assert await reply is place.reply


def test_a_handler_that_raises_is_not_in_the_way(place: Place) -> None:
    place.enforcer.publish(WORK)
    place.reply = CloseConnection("no")
    with pytest.raises(CloseConnection):
        place.ask(ApiKey.HEARTBEAT, HeartbeatRequest(), 4)


def test_a_context_without_client_id(place: Place) -> None:
    place.enforcer.publish({(("user", "ANONYMOUS"),): {"producer_byte_rate": 1000.0}})
    place.reply = ProduceResponse()
    answer = place.ask(ApiKey.PRODUCE, ProduceRequest(acks=1), 9, 15_000, client_id=None)
    assert answer.throttle_time_ms == 5_000
