"""The nodes that get the bad input: ours, and Apache Kafka as the reference.

Every test of the catalogue that needs a broker runs against both, so a wrong expectation fails on
Kafka as a wrong answer fails on ours. Our node runs inside this process, on a loop of its own
thread; Kafka's tests carry the mark `interop`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.memory.node import CLUSTER_ID, running_node
from testkit.processes.peer import Target
from testkit.processes.ports import free_ports

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.max.size": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "max.incremental.fetch.session.cache.slots": "20",
}
OURS = {"kraftbox.produce.validate.records": "true"}


@pytest.fixture(
    scope="session",
    params=["kraftbox", pytest.param("kafka", marks=pytest.mark.interop)],
)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """Return a node with SETTINGS, on a plain listener."""
    if request.param == "kraftbox":
        yield from kraftbox_target()
    else:
        if kafka_libs() is None:
            pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
        yield from kafka_target(tmp_path_factory.mktemp("kafka"))


def kraftbox_target() -> Iterator[Target]:
    started: list[Target] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        async with running_node(settings={**SETTINGS, **OURS}) as node:
            started.append(Target(("127.0.0.1", node.bound_port("PLAINTEXT")), is_kafka=False))
            stop.append((asyncio.get_running_loop(), ended))
            ready.set()
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the tests
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="node")
    thread.start()
    ready.wait()
    if started:
        yield started[0]
        loop, ended = stop[0]
        loop.call_soon_threadsafe(ended.set)
    thread.join()
    if failed:
        raise failed[0]


def kafka_target(directory: Path) -> Iterator[Target]:
    client, controller = free_ports(2)
    node = ApacheKafkaNode(
        directory,
        {
            **SETTINGS,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
        },
    )
    node.format(CLUSTER_ID)
    node.start()
    yield Target(("127.0.0.1", client), is_kafka=True)
    node.stop()
