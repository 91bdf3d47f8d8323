"""What comes and goes in numbers dies with its last reference: the collector keeps what survived it
once out of its sight (`runtime.collector`), so that a cycle would stay."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from broker.replication.partition import Partition
from metalog.image.values import PartitionImage
from protocol.api_keys import ApiKey
from protocol.messages.metadata import MetadataResponse
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable
from storage.log.log import Log
from testkit.memory.broker import Harness, batch
from testkit.memory.sockets import metadata, on_both_loops, raw_client, serving
from testkit.memory.turns import until

COUNT = 30


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(*kinds: type) -> dict[str, int]:
    found = Counter(map(type, gc.get_objects()))
    return {kind.__name__: found[kind] for kind in kinds}


async def test_deleted_partitions() -> None:
    h = Harness()
    kinds = (Partition, Log, PartitionImage)
    with no_collector():
        before = alive(*kinds)
        h.create_topic(partitions=COUNT)
        h.produce(batch(b"a"))
        assert alive(*kinds) == {name: n + COUNT for name, n in before.items()}
        h.delete_topic()
        assert alive(*kinds) == before


@on_both_loops
async def test_closed_connections() -> None:
    table = HandlerTable()
    table.register(ApiKey.METADATA, lambda context, request: MetadataResponse())
    async with serving(table) as server:
        with no_collector():
            # Others may be held by what a test before left behind.
            before = alive(ServerConnection)["ServerConnection"]
            for _ in range(COUNT):
                async with raw_client(server) as client:
                    client.writer.write(metadata(1))
                    await client.response()
            await until(lambda: alive(ServerConnection)["ServerConnection"] <= before)
