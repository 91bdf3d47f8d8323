"""Connections to other brokers: one per broker and purpose, bound to a registration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.peers.pool import PeerPool
from metalog.image.values import BrokerImage
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.metadata import FenceBrokerRecord, RegisterBrokerRecord, UnregisterBrokerRecord
from protocol.transport.server import Server
from testkit.memory.broker import LISTENER, OTHER, Harness
from testkit.memory.sockets import LIMIT_S, Echo, serving
from testkit.memory.turns import until

TIMEOUT_MS = 60_000.0


class World:
    """A broker whose metadata gives another one the address of a server."""

    def __init__(self, server: Server, echo: Echo) -> None:
        self.h = Harness()
        self.echo = echo
        self.server = server
        self.register(1)
        self.pool = PeerPool(self.h.metadata, listener=LISTENER)

    def register(self, epoch: int, address: tuple[str, int] | None = None) -> None:
        """Register the other broker, unfenced, at the server's address or another one."""
        host, port = address or self.server.address
        endpoint = RegisterBrokerRecord.BrokerEndpoint(
            name=LISTENER, host=host, port=port, security_protocol=0
        )
        self.h.replay(
            RegisterBrokerRecord(
                broker_id=OTHER,
                incarnation_id=bytes(16),
                broker_epoch=epoch,
                end_points=[endpoint],
                fenced=False,
            )
        )

    @property
    def broker(self) -> BrokerImage:
        return self.h.metadata.image.cluster.brokers[OTHER]

    async def client_id(self, purpose: str) -> str | None:
        """Return the client id of a request for a purpose, as the other broker receives it."""
        request = MetadataRequest(topics=[])
        answer = await self.pool.peer(OTHER, purpose).request(request, TIMEOUT_MS)
        assert isinstance(answer, MetadataResponse)
        return answer.cluster_id

    def waiting(self) -> asyncio.Task[object]:
        """Send a request that the other broker does not answer."""
        request = HeartbeatRequest(group_id="waits")
        return asyncio.ensure_future(self.pool.peer(OTHER, "slow").request(request, TIMEOUT_MS))

    @property
    def connections(self) -> int:
        return len(list(self.server.connections))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    echo = Echo()
    async with serving(echo.table()) as server, asyncio.timeout(LIMIT_S):
        found = World(server, echo)
        yield found
        found.pool.close()


async def test_each_purpose_has_its_own_connection_and_client_id() -> None:
    """A request that waits for bytes delays no request of another purpose."""
    async with world() as w:
        slow = w.waiting()
        await w.echo.until(lambda: "waits" in w.echo.waiting)
        assert await w.client_id("tier-write") == "broker-1-tier-write"
        assert await w.client_id("tier-write") == "broker-1-tier-write"
        assert w.connections == 2 and not slow.done()
        w.echo.release("waits")
        await slow


@pytest.mark.parametrize("change", ["epoch", "address", "fenced", "removed"])
async def test_connection_is_dropped_when_its_registration_changes(change: str) -> None:
    """A request must neither wait for its timeout nor reach another incarnation by chance."""
    async with world() as w:
        slow = w.waiting()
        await w.echo.until(lambda: "waits" in w.echo.waiting)
        peer = w.pool.peer(OTHER, "slow")
        if change == "epoch":
            w.register(2)
        elif change == "address":
            w.register(1, ("127.0.0.1", 1))
        elif change == "fenced":
            w.h.replay(FenceBrokerRecord(id=OTHER, epoch=w.broker.epoch))
        else:
            w.h.replay(UnregisterBrokerRecord(broker_id=OTHER, broker_epoch=w.broker.epoch))
        w.pool.published()
        with pytest.raises(ConnectionError):
            await slow
        await until(lambda: not w.connections)
        assert (w.pool.peer(OTHER, "slow") is peer) is (change != "removed")


async def test_connection_of_an_unchanged_registration_is_kept() -> None:
    async with world() as w:
        slow = w.waiting()
        await w.echo.until(lambda: "waits" in w.echo.waiting)
        w.h.create_topic()
        w.pool.published()
        w.echo.release("waits")
        await slow
        assert w.connections == 1


async def test_next_request_connects_to_the_new_registration() -> None:
    async with world() as w:
        w.register(2, ("127.0.0.1", 1))
        with pytest.raises(OSError):
            await w.client_id("any")
        w.register(3)
        w.pool.published()
        assert await w.client_id("any") == "broker-1-any"


async def test_registration_that_changes_while_connecting_fails_the_request() -> None:
    async with world() as w:
        asking = asyncio.ensure_future(w.client_id("any"))
        await asyncio.sleep(0)
        w.register(2)
        with pytest.raises(ConnectionResetError):
            await asking
        assert await w.client_id("any") == "broker-1-any"


async def test_released_connection_is_closed_and_made_again_on_request() -> None:
    async with world() as w:
        slow = w.waiting()
        await w.echo.until(lambda: "waits" in w.echo.waiting)
        w.pool.release(OTHER, "slow")
        w.pool.release(OTHER, "never used")
        with pytest.raises(ConnectionError):
            await slow
        assert await w.client_id("slow") == "broker-1-slow"


async def test_closed_pool_fails_requests_in_flight_and_later_ones() -> None:
    async with world() as w:
        slow = w.waiting()
        await w.echo.until(lambda: "waits" in w.echo.waiting)
        peer = w.pool.peer(OTHER, "slow")
        w.pool.close()
        with pytest.raises(ConnectionError):
            await slow
        for one in (peer, w.pool.peer(OTHER, "slow"), w.pool.peer(OTHER, "first used now")):
            with pytest.raises(ConnectionError):
                await one.request(MetadataRequest(topics=[]), TIMEOUT_MS)
