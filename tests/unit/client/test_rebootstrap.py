"""Brokers of another cluster at a known address (KIP-1242)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from client import retries
from client.cluster_client import ClusterClient, Rebootstrapped
from protocol.api_keys import ApiKey
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.node_identity import NodeIdentity
from protocol.transport.server import Server
from runtime.clock import SystemClock

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Cluster:
    """Brokers 0 and 1 of one cluster; `heartbeats` lists the brokers that received one."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.servers: dict[int, Server] = {}
        self.heartbeats: list[int] = []

    async def start(self, node_id: int, port: int = 0) -> int:
        server = Server(self._table(node_id), clock=SystemClock(), listener="PLAINTEXT")
        await server.start("127.0.0.1", port)
        self.servers[node_id] = server
        return server.address[1]

    async def stop(self, node_id: int) -> None:
        await self.servers.pop(node_id).close(grace_ms=0)

    def _table(self, node_id: int) -> HandlerTable:
        def metadata(_: RequestContext, __: MetadataRequest) -> MetadataResponse:
            brokers = [
                MetadataResponse.MetadataResponseBroker(
                    node_id=one, host=server.address[0], port=server.address[1]
                )
                for one, server in self.servers.items()
            ]
            return MetadataResponse(brokers=brokers, cluster_id=self.cluster_id)

        def heartbeat(_: RequestContext, __: HeartbeatRequest) -> HeartbeatResponse:
            self.heartbeats.append(node_id)
            return HeartbeatResponse()

        table = HandlerTable()
        table.serve_api_versions(identity=NodeIdentity(self.cluster_id, node_id))
        table.register(ApiKey.METADATA, metadata)
        table.register(ApiKey.HEARTBEAT, heartbeat)
        return table


@asynccontextmanager
async def two_clusters(
    *, check_cluster: bool
) -> AsyncIterator[tuple[Cluster, Cluster, ClusterClient]]:
    """Yield two clusters and a client of the first, whose broker 1 gave its port to the second."""
    ours, theirs = Cluster("ours"), Cluster("theirs")
    bootstrap = await ours.start(0)
    port = await ours.start(1)
    try:
        async with await ClusterClient.connect(
            [("127.0.0.1", bootstrap)], check_cluster=check_cluster
        ) as client:
            await ours.stop(1)
            await theirs.start(1, port)
            yield ours, theirs, client
    finally:
        for cluster in (ours, theirs):
            for node_id in list(cluster.servers):
                await cluster.stop(node_id)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_WAIT_MS", 1.0)


async def test_request_broker_of_another_cluster_sends_nothing_and_begins_again() -> None:
    async with two_clusters(check_cluster=True) as (ours, theirs, client):
        with pytest.raises(Rebootstrapped, match="belongs to another cluster or broker now"):
            await client.request_broker(1, HEARTBEAT)
        assert theirs.heartbeats == []
        assert (client.cache.brokers, client.cache.cluster_id) == ({}, None)
        await client.metadata([])
        assert (client.cache.cluster_id, list(client.cache.brokers)) == ("ours", [0])
        await client.request_broker(0, HEARTBEAT)
        assert ours.heartbeats == [0]


async def test_request_any_with_a_broker_of_another_cluster_reaches_its_own_cluster() -> None:
    """The request is tried at the foreign address first, because the other broker failed last."""
    async with two_clusters(check_cluster=True) as (ours, theirs, client):
        client._failures[client.cache.brokers[0]] = client._loop.time()
        await client.request_any(HEARTBEAT)
        assert (ours.heartbeats, theirs.heartbeats) == ([0], [])


async def test_request_broker_without_the_check_reaches_the_other_cluster() -> None:
    async with two_clusters(check_cluster=False) as (_, theirs, client):
        await client.request_broker(1, HEARTBEAT)
        assert theirs.heartbeats == [1]
