"""A thousand partitions on one node: the cost, with bounds far above the measured values.

Time is CPU time of the node, which other work on the machine changes little; `bench.partitions`
measures the figures themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from bench.nodes import cpu_seconds, resident_mb
from bench.partitions import TOPIC, connect, create, produce_to_each
from protocol.messages.list_offsets import ListOffsetsRequest
from testkit.processes.nodes import KraftboxNode
from testkit.processes.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

PARTITIONS = 1_000
START_CPU_S_MAX = 5.0
"""More than without partitions; 0.3 s after a clean stop, 0.5 after kill -9."""
GROWTH_MB_MAX = 80.0
IDLE_CORE_MAX = 0.15
SCRAPE_CPU_S_MAX = 2.0
LATEST = -1


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    settings = {"kraftbox.http.listener": f"127.0.0.1:{free_port()}"}
    made = KraftboxNode(tmp_path / "node", settings=settings, stop_timeout_s=240)
    yield made
    made.kill()


async def fill(node: KraftboxNode) -> None:
    connection = await connect(node)
    await create(connection, PARTITIONS)
    await connection.close()
    await produce_to_each(node, PARTITIONS)


async def ends(node: KraftboxNode) -> list[int]:
    """Return the end offset of each partition."""
    connection = await connect(node)
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=TOPIC,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                    for index in range(PARTITIONS)
                ],
            )
        ]
    )
    response = await connection.request(request, timeout_ms=60_000, version=7)
    await connection.close()
    return [found.offset for found in response.topics[0].partitions]


def test_a_thousand_partitions_are_cheap_while_nothing_happens_and_start_soon(
    node: KraftboxNode,
) -> None:
    node.start()
    bare_mb, bare_s = resident_mb(node.pid), cpu_seconds(node.pid)
    asyncio.run(fill(node))
    assert resident_mb(node.pid) - bare_mb < GROWTH_MB_MAX

    before, began = cpu_seconds(node.pid), time.monotonic()
    time.sleep(5)
    assert (cpu_seconds(node.pid) - before) / (time.monotonic() - began) < IDLE_CORE_MAX

    before = cpu_seconds(node.pid)
    text = scraped(node)
    assert cpu_seconds(node.pid) - before < SCRAPE_CPU_S_MAX
    assert text.count(f'kafka_log_log_size{{topic="{TOPIC}"') == PARTITIONS

    assert node.stop() == 0
    node.start()
    assert cpu_seconds(node.pid) - bare_s < START_CPU_S_MAX
    assert asyncio.run(ends(node)) == [1] * PARTITIONS
    asyncio.run(produce_to_each(node, PARTITIONS))
    node.kill()
    node.start()
    assert cpu_seconds(node.pid) - bare_s < START_CPU_S_MAX
    assert asyncio.run(ends(node)) == [2] * PARTITIONS


def scraped(node: KraftboxNode) -> str:
    """Return the text of one scrape."""
    address = node.settings["kraftbox.http.listener"]
    with urlopen(f"http://{address}/metrics", timeout=60) as reply:
        return str(reply.read(), "utf-8")
