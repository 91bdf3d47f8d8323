"""Connections: B4 and B43 to B46 of the catalogue, and F36 of the fault matrix.

First the listeners of a trivial server, whose internals can be inspected; then whole nodes.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.fetch import FetchRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.transport.admission import ConnectionGate, ConnectionLimits
from protocol.transport.client import Connection
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import SystemClock
from testkit.memory.node import running_node
from testkit.memory.sockets import (
    Echo,
    RawClient,
    correlation_id_of,
    framed,
    metadata,
    on_both_loops,
    raw_client,
    serving,
)
from testkit.memory.turns import until
from testkit.processes.nodes import KraftboxNode
from testkit.processes.peer import Target
from testkit.records.lying_batches import batch, record


async def answers(client: RawClient) -> None:
    client.writer.write(metadata(9))
    assert correlation_id_of(await client.response()) == 9


# --- B4, B43: what quiet clients cost ------------------------------------------------------------


@on_both_loops
async def test_b04_a_hundred_megabytes_announced_and_ten_bytes_sent() -> None:
    memory = RequestMemory(1_000_000)
    async with (
        serving(Echo().table(), memory=memory, idle_ms=300.0) as server,
        AsyncExitStack() as stack,
    ):
        hostile = [await stack.enter_async_context(raw_client(server)) for _ in range(20)]
        for client in hostile:
            await client.greet()
        greeted = server.connection_stats.bytes_in
        for client in hostile:
            client.writer.write((100_000_000).to_bytes(4, "big") + bytes(6))
        await until(lambda: server.connection_stats.bytes_in == greeted + 200)
        assert memory.used_bytes == 20 * 512
        for client in hostile:
            assert await client.closed() == b""
        assert memory.used_bytes == 0
        assert server.connection_stats.closed_idle == 20


@on_both_loops
async def test_b43_a_thousand_slow_clients() -> None:
    """Each of their bytes is processed on arrival, and no other client waits for them."""
    memory = RequestMemory()
    count = 400
    async with (
        serving(Echo().table(), memory=memory, backlog=1000) as server,
        AsyncExitStack() as stack,
    ):
        slow = [await stack.enter_async_context(raw_client(server)) for _ in range(count)]
        other = await stack.enter_async_context(raw_client(server))
        request = metadata(3)
        for sent, byte in enumerate(request[:-1], start=1):
            for client in slow:
                client.writer.write(bytes((byte,)))
            await until(lambda sent=sent: server.connection_stats.bytes_in >= sent * count)  # type: ignore[misc]
        await answers(other)
        assert memory.used_bytes == count * 512
        for client in slow:
            client.writer.write(request[-1:])
        for client in slow:
            assert correlation_id_of(await client.response()) == 3
        assert memory.used_bytes == 0


# --- B44: too many connections -------------------------------------------------------------------


@on_both_loops
async def test_b44_over_max_connections_new_ones_wait() -> None:
    gate = ConnectionGate(ConnectionLimits(connections_max=2, waiting_max=1))
    async with serving(Echo().table(), gate=gate) as server:
        async with (
            raw_client(server) as one,
            raw_client(server) as two,
            raw_client(server) as three,
        ):
            await answers(one)
            await answers(two)
            three.writer.write(metadata(3))
            async with raw_client(server) as four:
                assert await four.closed() == b""
            assert server.connection_stats.refused == 1
            assert (server.connection_stats.open, gate.waiting) == (2, 1)
            one.writer.close()
            assert correlation_id_of(await three.response()) == 3
            await answers(three)
        await until(lambda: server.connection_stats.open == 0)
        assert gate.served == gate.waiting == 0


@on_both_loops
async def test_b44_over_max_connections_per_ip_new_ones_are_closed() -> None:
    gate = ConnectionGate(ConnectionLimits(per_ip_max=1))
    async with serving(Echo().table(), gate=gate) as server:
        async with raw_client(server) as one:
            await answers(one)
            for _ in range(10):
                async with raw_client(server) as two:
                    assert await two.closed() == b""
            await answers(one)
        await until(lambda: server.connection_stats.open == 0)
        async with raw_client(server) as again:
            await answers(again)


@on_both_loops
async def test_b44_over_the_creation_rate_new_ones_are_delayed() -> None:
    limits = ConnectionLimits(rate_max=5, window_count=2, window_ms=200.0)
    async with (
        serving(Echo().table(), gate=ConnectionGate(limits)) as server,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(raw_client(server)) for _ in range(4)]
        for client in clients:
            client.writer.write(metadata(1))
        assert correlation_id_of(await clients[0].response()) == 1
        assert server.connection_stats.open < 4
        for client in clients[1:]:
            assert correlation_id_of(await client.response()) == 1


@on_both_loops
async def test_b44_brokers_are_served_when_clients_fill_the_node() -> None:
    gate = ConnectionGate(ConnectionLimits(connections_max=2, protected="REPLICATION"))
    brokers = Server(Echo().table(), clock=SystemClock(), listener="REPLICATION", gate=gate)
    await brokers.start("127.0.0.1", 0)
    async with (
        serving(Echo().table(), gate=gate) as server,
        raw_client(server) as one,
        raw_client(server) as two,
        raw_client(brokers) as broker,
    ):
        await answers(two)
        await answers(broker)
        assert await one.closed() == b""
        await answers(two)
    await brokers.close()


@on_both_loops
async def test_b44_brokers_are_read_when_clients_use_up_the_memory() -> None:
    memory, gate = RequestMemory(100_000), ConnectionGate()
    brokers = Server(Echo().table(), clock=SystemClock(), listener="REPLICATION", gate=gate)
    await brokers.start("127.0.0.1", 0)
    big = framed(metadata(1)[4:].ljust(500_000, b"\x00"))
    async with (
        serving(Echo().table(), gate=gate, memory=memory) as server,
        raw_client(server) as one,
        raw_client(server) as two,
        raw_client(brokers) as broker,
    ):
        for client in (one, two):
            client.writer.write(big[:-1])
        await until(lambda: memory.waiting == 1)
        broker.writer.write(big)
        assert correlation_id_of(await broker.response()) == 1
        for client in (one, two):
            client.writer.write(big[-1:])
        for client in (one, two):
            assert correlation_id_of(await client.response()) == 1
    await brokers.close()


def test_f36_out_of_descriptors(tmp_path: Path) -> None:
    """With 256 descriptors, connections beyond their share are closed.

    Existing connections and the log's files keep working, and freed descriptors are used again.
    """
    settings = {"socket.listen.backlog.size": "400"}
    node = KraftboxNode(tmp_path / "node", settings=settings, descriptors_max=256).start()
    host, _, port = node.bootstrap.rpartition(":")
    target = Target((host, int(port)), is_kafka=False)
    try:
        first = target.connect()
        first.works()
        topic = target.topic(partitions=20)
        crowd = [socket.create_connection(target.address) for _ in range(300)]
        deadline = time.monotonic() + 30.0
        refused = 0
        while refused <= 200:
            assert time.monotonic() < deadline, f"only {refused} were closed"
            # A connection with nothing to read is open, and the node has sent nothing on any of
            # them.
            refused = len(select.select(crowd, [], [], 0.05)[0])
        first.works()
        assert len(select.select(crowd, [], [], 0)[0]) < 300
        for one in crowd:
            one.close()
        for partition in range(20):
            assert target.produce(topic, batch(), partition=partition).error_code == 0
        first.socket.close()
    finally:
        assert node.stop() == 0


# --- B45, B46: clients that send and do not read --------------------------------------------------


def test_b45_a_reader_that_never_reads(target: Target) -> None:
    topic = target.topic()
    for _ in range(20):
        assert target.produce(topic, batch(record(bytes(900_000)))).error_code == 0
    request = FetchRequest(
        session_epoch=-1,
        max_bytes=50_000_000,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic.name,
                partitions=[
                    FetchRequest.FetchPartition(partition=0, partition_max_bytes=50_000_000)
                ],
            )
        ],
    )
    with target.connect() as hostile:
        for _ in range(1000):
            hostile.ask_later(request, 12)
        with target.connect() as other:
            for _ in range(20):
                other.works()
        hostile.reset()
    with target.connect() as peer:
        peer.works()


def test_b46_a_hundred_thousand_requests_at_once(target: Target) -> None:
    count = 100_000
    frames = bytearray()
    for n in range(count):
        body = b"\x00\x03\x00\x01" + n.to_bytes(4, "big") + b"\xff\xff" + bytes(4)
        frames += len(body).to_bytes(4, "big") + body
    with target.connect(60.0) as peer:
        sender = threading.Thread(target=peer.send, args=(bytes(frames),))
        sender.start()
        for n in range(count):
            frame = peer.frame()
            assert int.from_bytes(frame[:4], "big") == n
        sender.join()
        peer.works()


@pytest.mark.parametrize("requests", [1, 2, 1000])
def test_b46_requests_behind_one_that_waits(target: Target, requests: int) -> None:
    """The answers keep their order, whatever request waits in front of them."""
    topic = target.topic()
    wait = FetchRequest(
        session_epoch=-1,
        max_bytes=1000,
        min_bytes=1,
        max_wait_ms=300,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic.name,
                partitions=[FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)],
            )
        ],
    )
    with target.connect() as peer:
        first = peer.ask_later(wait, 12)
        behind = [peer.ask_raw(ApiKey.METADATA, 1, bytes(4)) for _ in range(requests)]
        assert peer.answer(ApiKey.FETCH, 12)[0] == first
        assert [peer.answer(ApiKey.METADATA, 1)[0] for _ in behind] == behind


async def test_b44_limits_may_be_changed_while_the_node_runs() -> None:
    async with running_node() as node:
        port = node.bound_port("PLAINTEXT")
        first = await Connection.connect("127.0.0.1", port, "test", 5_000)
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name="max.connections.per.ip", config_operation=0, value="1"
                        )
                    ],
                )
            ]
        )
        answer = await first.request(request)
        assert answer.responses[0].error_code == 0
        async with asyncio.timeout(10.0):
            while True:
                try:
                    other = await Connection.connect("127.0.0.1", port, "test", 5_000)
                except OSError:
                    break
                await other.close()
        await first.request(MetadataRequest(topics=[]))
        await first.close()
