"""Changes of a topic while one of its requests to the store is under way, on a real node (F33).

A proxy holds the request until the change is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer, PositionReset
from client.offsets import offsets_at
from testkit.processes.nodes import KraftboxNode
from testkit.processes.object_servers import Servers
from testkit.processes.store_proxy import Point, StoreProxy
from testkit.processes.waiting import WAIT_S, until
from tests.e2e.numbers import create_topic, read_numbers
from tests.e2e.tier.node import (
    TOPIC,
    delete_topic,
    objects_in,
    segments,
    send,
    store_of,
    tier_settings,
    topic_id,
    until_clean,
)

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

RECORDS = 6_000
"""About two segments and a half."""
SEGMENT_BYTES = 32 << 10
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
}


class Scene:
    """A node, its store, and the proxy between them."""

    def __init__(self, node: KraftboxNode, proxy: StoreProxy, store: dict[str, str]) -> None:
        self.node = node
        self.proxy = proxy
        self.store = store

    def fill(self, first: int = 0) -> None:
        create_topic(self.node.bootstrap, TOPIC, **CONFIG)
        send(self.node, first, RECORDS)

    def folders(self) -> set[str]:
        """Return ids of the topics that have objects in the store."""
        return {one.key.partition("/")[0] for one in objects_in(self.store)}

    def clean(self) -> None:
        until_clean(("--dir", str(self.node.directory)))


@pytest.fixture
def scene(tmp_path: Path, servers: Servers) -> Iterator[Scene]:
    store = store_of(servers, "versitygw")
    with StoreProxy(store["endpoint"]) as proxy:
        settings = tier_settings({**store, "endpoint": proxy.endpoint})
        node = KraftboxNode(tmp_path / "node", settings=settings)
        try:
            yield Scene(node.start(), proxy, store)
        finally:
            node.kill()


def test_s10_a_topic_is_deleted_and_made_again_in_mid_copy(scene: Scene) -> None:
    """The first topic's objects go, also those stored after its deletion; the new one keeps its
    own."""
    node, proxy = scene.node, scene.proxy
    create_topic(node.bootstrap, TOPIC, **CONFIG)
    first = topic_id(node)
    held = proxy.hold(Point("PUT", "index", answered=False), first)
    send(node, 0, RECORDS)
    proxy.wait_until_held(held)
    delete_topic(node)
    scene.fill(first=RECORDS)
    second = topic_id(node)
    assert second != first
    until("the new one is in the tier", lambda: len(segments(node)) == 1 and segments(node)[0])
    proxy.release(held)
    until("only the new one is there", lambda: scene.folders() == {second}, every_s=0.2)
    scene.clean()
    assert read_numbers(node.bootstrap, TOPIC) == list(range(RECORDS, 2 * RECORDS))


def delete_records(node: KraftboxNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    before = TopicPartition(TOPIC, 0, segments(node)[0] - 10)
    for future in admin.delete_records([before]).values():
        future.result(WAIT_S)


def expire(node: KraftboxNode) -> None:
    async def alter() -> None:
        async with await ClusterClient.connect(node.bootstrap) as client:
            # A limit that the last segment's copy in the tier would still satisfy.
            change = ConfigChange("retention.bytes", ConfigOperation.SET, str(SEGMENT_BYTES))
            await Admin(client).alter_configs(ResourceType.TOPIC, TOPIC, [change])

    asyncio.run(alter())


Read = list[tuple[int, bytes | None]]


async def read_all(
    node: KraftboxNode,
) -> tuple[Read, list[PositionReset]]:
    """Read offsets and values from 0 to the end, with the offsets at which the reader was reset."""
    found: Read = []
    resets: list[PositionReset] = []
    partition = (TOPIC, 0)
    async with await ClusterClient.connect(node.bootstrap) as client:
        end = (await offsets_at(client, [partition], LATEST))[partition]
        consumer = Consumer(client, on_reset=resets.append)
        consumer.assign({partition: 0})
        while consumer.positions[partition] < end:
            found += [(one.offset, one.value) for one in await consumer.poll()]
    return found, resets


def log_start(node: KraftboxNode) -> int:
    async def ask() -> int:
        async with await ClusterClient.connect(node.bootstrap) as client:
            return (await offsets_at(client, [(TOPIC, 0)], EARLIEST))[TOPIC, 0]

    return asyncio.run(ask())


WAYS = {"ordered": delete_records, "expired": expire}


@pytest.mark.parametrize("way", ["ordered", pytest.param("expired", marks=pytest.mark.soak)])
@pytest.mark.parametrize("answered", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_s4_what_is_being_read_goes(scene: Scene, way: str, answered: bool) -> None:
    """A reader learns of the later log start and gets no earlier records; all others follow."""
    node, proxy = scene.node, scene.proxy
    scene.fill()
    until("it is in the tier only", lambda: len(segments(node)) == 1 and segments(node)[0])
    held = proxy.hold(Point("GET", "log", answered=answered), topic_id(node))

    async def story() -> None:
        reading = asyncio.create_task(read_all(node))
        await asyncio.to_thread(proxy.wait_until_held, held)
        await asyncio.to_thread(WAYS[way], node)
        start = await asyncio.to_thread(until, "a log start", lambda: log_start(node))
        await asyncio.to_thread(scene.clean)
        proxy.release(held)
        found, resets = await asyncio.wait_for(reading, WAIT_S)
        assert [(one.requested_offset, one.position) for one in resets] == [(0, start)]
        assert found == [(offset, b"%d" % offset) for offset in range(start, RECORDS)]

    asyncio.run(story())
