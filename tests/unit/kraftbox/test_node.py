"""The composed node: it starts, serves, stops and restarts, with real sockets and no disk."""

import asyncio
import random

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection
from runtime.clock import LoopClock, SystemClock
from runtime.errors import StartupRefused
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from storage.files import MemoryFiles
from testkit.memory.node import make_node, running_node
from testkit.memory.turns import until


async def connect(node) -> Connection:
    return await Connection.connect("127.0.0.1", node.bound_port("PLAINTEXT"), "test", 5000)


async def create_topic(node, name: str) -> int:
    connection = await connect(node)
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    reply = await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    await connection.close()
    return reply.topics[0].error_code


async def topic_names(node) -> list[str]:
    connection = await connect(node)
    reply = await connection.request(MetadataRequest(topics=None))
    await connection.close()
    return sorted(topic.name for topic in reply.topics)


async def get(node, path: str, headers: str = "") -> tuple[bytes, bytes]:
    """Send a GET request. Returns: status and body."""
    host, _, port = node.http_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.0\r\n{headers}\r\n".encode())
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = reply.partition(b"\r\n\r\n")
    return head.split(b" ")[1], body


async def test_health_readiness_and_metrics():
    async with running_node() as node:
        assert node.ready
        assert await get(node, "/healthz") == (b"200", b"ok\n")
        assert await get(node, "/readyz") == (b"200", b"ready\n")
        status, metrics = await get(node, "/metrics")
        assert status == b"200"
        assert b"kraftbox_loop_lag_seconds" in metrics
        assert b"kafka_controller_kafkacontroller_activecontrollercount 1" in metrics
        assert b"# EOF" not in metrics
        accept = "Accept: text/html\r\nAccept: application/openmetrics-text\r\n"
        assert (await get(node, "/metrics", accept))[1].endswith(b"# EOF\n")


async def test_topic_exists_after_restart_of_node():
    files = MemoryFiles()
    async with running_node(files) as node:
        assert await create_topic(node, "orders") == ErrorCode.NONE
    async with running_node(files) as node:
        assert await topic_names(node) == ["orders"]
        assert await create_topic(node, "orders") == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_lost_broker_listener_receives_every_new_image():
    async with running_node() as node:
        images = []
        node.broker.context.lost.lost(node.broker.config.node_id, SystemClock().monotonic_ms())
        node.broker.context.lost.when_changed(
            lambda: images.append(node.broker.metadata.topic("t"))
        )
        assert await create_topic(node, "t") == ErrorCode.NONE
        await until(lambda: images != [])
        assert images[0] is not None, "the image is to be in place by then"


async def test_node_that_did_not_start_is_not_ready_and_stops():
    files = MemoryFiles()
    node = make_node(files)
    assert not node.ready
    assert list(node.not_ready()) == ["the metadata log is not open yet"]
    await node.stop()
    await node.stop()


async def test_two_nodes_do_not_share_a_directory():
    files = MemoryFiles()
    async with running_node(files):
        second = make_node(files)
        with pytest.raises(StartupRefused, match="in use"):
            await second.start()
        await second.stop()


async def test_a_directory_of_another_node_is_refused():
    files = MemoryFiles()
    async with running_node(files):
        pass
    other = make_node(MemoryFiles(), {"node.id": "2", "controller.quorum.voters": "2@127.0.0.1:0"})
    other.files = files
    with pytest.raises(StartupRefused, match="belongs to node 1"):
        await other.start()
    await other.stop()


async def test_an_address_that_is_taken_is_refused():
    async with running_node() as node:
        port = node.bound_port("PLAINTEXT")
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        second = make_node(MemoryFiles(), {"listeners": listeners})
        with pytest.raises(StartupRefused, match="in use"):
            await second.start()
        await second.stop()


@pytest.mark.slow
def test_the_same_code_runs_on_virtual_time():
    loop = VirtualLoop(Network(random.Random(5)))

    async def scenario() -> list[str]:
        node = make_node(MemoryFiles(), clock=LoopClock(loop, 1_700_000_000_000))
        await node.start()
        assert await create_topic(node, "orders") == ErrorCode.NONE
        names = await topic_names(node)
        await asyncio.sleep(3600)
        assert node.ready
        await node.stop()
        assert not node.failed.done()
        return names

    assert loop.run_world(scenario()) == ["orders"]
    assert loop.failures == []
    loop.close()
