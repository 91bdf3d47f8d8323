"""Frequent objects, freed with their last reference.

The collector no longer scans objects that have survived it once (`runtime.collector`), so a
reference cycle would stay in memory.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from broker.replication.partition.partition import Partition
from metalog.image.values import PartitionImage
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.produce import ProduceRequest
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable, RequestContext
from storage.log.log import Log
from storage.objects import FaultyObjects, Weather
from testkit.memory.broker import NODE, OTHER, Harness, Peer, batch, settle
from testkit.memory.sockets import metadata, on_both_loops, raw_client, serving
from testkit.memory.tier import READS, TierRoom
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
            # Objects of earlier tests may hold others.
            before = alive(ServerConnection)["ServerConnection"]
            for _ in range(COUNT):
                async with raw_client(server) as client:
                    client.writer.write(metadata(1))
                    await client.response()
            await until(lambda: alive(ServerConnection)["ServerConnection"] <= before)


REQUESTS = (RequestContext, FetchRequest, FetchResponse.PartitionData, ProduceRequest)


def data(waiting: asyncio.Future[FetchResponse]) -> FetchResponse.PartitionData:
    return waiting.result().responses[0].partitions[0]


def expire(h: Harness) -> None:
    """Let all waits reach their deadline."""
    h.clock.advance(60_000)
    h.waits.purgatory.expire(h.clock.monotonic_ms())


async def wait_for_records(h: Harness) -> None:
    """Wait for records: one fetch gets them, one times out, one loses its connection."""
    waiting = h.fetch(0, max_wait_ms=1_000, peer=Peer(1))
    assert h.produce(batch(b"a")).error_code == 0
    await settle()
    assert data(waiting).records
    waiting = h.fetch(1, max_wait_ms=1_000, peer=Peer(1))
    expire(h)
    await settle()
    assert not data(waiting).records
    gone = Peer(2)
    waiting = h.fetch(1, max_wait_ms=1_000, peer=gone)
    gone.close("gone")
    assert waiting.cancelled()


async def wait_for_followers(h: Harness) -> None:
    """Wait for followers, which never copy the record."""
    waiting = h.produce(batch(b"a"), peer=Peer(1))
    expire(h)
    await settle()
    (answered,) = waiting.result().responses[0].partition_responses
    assert answered.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("what", [wait_for_records, wait_for_followers])
async def test_requests_that_waited(what: Callable[[Harness], Awaitable[None]]) -> None:
    h = Harness()
    replicas = [NODE, OTHER] if what is wait_for_followers else [NODE]
    h.create_topic(replicas=replicas, isr=replicas)
    with no_collector():
        before = alive(*REQUESTS)
        for _ in range(COUNT):
            await what(h)
            h.delete_topic()
            h.create_topic(replicas=replicas, isr=replicas)
        assert alive(*REQUESTS) == before


async def data_comes(room: TierRoom) -> int:
    return 0


async def the_store_is_late(room: TierRoom) -> int:
    room.held.holding = True
    return 0


async def the_store_fails(room: TierRoom) -> int:
    room.tier.store.objects = FaultyObjects(room.tier.bucket, random.Random(1), Weather(down=True))
    return ErrorCode.KAFKA_STORAGE_ERROR


async def too_many_ask(room: TierRoom) -> int:
    room.settings = replace(READS, at_once=0, pending_max=0)
    return ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    "what",
    [data_comes, the_store_is_late, the_store_fails, too_many_ask],
    ids=lambda one: one.__name__,
)
async def test_fetches_of_what_only_the_tier_has(
    what: Callable[[TierRoom], Awaitable[int]],
) -> None:
    """Only the reader, which has a limit, keeps the data that it read."""
    room = TierRoom()
    await room.fill((b"a",))
    expected = await what(room)
    with no_collector():
        before = alive(*REQUESTS)
        for _ in range(COUNT):
            waiting = room.h.fetch(0, peer=Peer(1))
            for _ in range(5):
                await settle()
            expire(room.h)
            await settle()
            assert data(waiting).error_code == expected
            del waiting
        assert alive(*REQUESTS) == before
