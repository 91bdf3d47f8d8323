"""A node on a disk with flushes of 1 s and reads of 0.1 s, on virtual time (F16).

Only operations that need the disk wait. No call blocks the loop on the disk while the node serves,
no broker is fenced, and no acknowledged record is missing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from protocol.batch.records import Record, build_batch, read_records
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.transport.client import Connection
from runtime.clock import LoopClock
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from storage.files import MemoryFiles, SlowFiles
from testkit.memory.metric_traffic import connect, fetch, join, produce, scrape, topic_id_of
from testkit.memory.node import make_node

T = TypeVar("T")

FLUSH_S, READ_S = 1.0, 0.1
FACTOR_MAX = 2.5
"""A flush that is requested during another waits for both."""


class SlowDisk(SlowFiles):
    """A disk that distinguishes calls that block the loop from those that block a worker."""

    def __init__(self) -> None:
        super().__init__(
            MemoryFiles(), flush_ms=FLUSH_S * 1000, read_ms=READ_S * 1000, block=self._note
        )
        self.blocked: list[float] = []
        self._in_worker = False

    def _note(self, wait_s: float) -> None:
        if not self._in_worker:
            self.blocked.append(wait_s)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        if getattr(function, "__self__", None) is self:
            return await super().run(function, *args)

        def in_worker() -> T:
            self._in_worker = True
            try:
                return function(*args)
            finally:
                self._in_worker = False

        return await self.backing.run(in_worker)


async def timed(work: Awaitable[T]) -> tuple[float, T]:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    result = await work
    return loop.time() - begun, result


async def create(connection: Connection, name: str, **config: str) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )
    took_s, reply = await timed(
        connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    )
    assert reply.topics[0].error_code == ErrorCode.NONE
    assert FLUSH_S <= took_s < FLUSH_S * FACTOR_MAX, "a metadata record is flushed first"
    return await topic_id_of(connection, name)


def batch(number: int, size_bytes: int = 10) -> bytes:
    return build_batch([Record(0, 0, None, b"%d" % number + bytes(size_bytes))])


async def send(connection: Connection, topic_id: bytes, records: bytes) -> float:
    """Send a record and return the time of its acknowledgement in seconds."""
    took_s, reply = await timed(connection.request(produce(topic_id, 0, records)))
    assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return took_s


async def read(connection: Connection, topic_id: bytes) -> tuple[float, list[int]]:
    """Read a topic. Returns: its numbers, and the longest time of a fetch."""
    numbers: list[int] = []
    slowest_s, offset = 0.0, 0
    while True:
        took_s, reply = await timed(connection.request(fetch(topic_id, offset)))
        data = reply.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE
        slowest_s = max(slowest_s, took_s)
        found = list(read_records(bytes(data.records or b"")))
        if not found:
            return slowest_s, numbers
        numbers += [int(bytes(record.value or b"").rstrip(b"\0")) for record in found]
        offset = found[-1].offset + 1


async def scenario(disk: SlowDisk, clock: LoopClock) -> None:
    node = make_node(disk, {"log.segment.bytes": "1048576"}, clock=clock)
    await node.start()
    disk.blocked.clear()
    client, other = await connect(node), await connect(node)
    plain = await create(client, "plain")
    flushed = await create(client, "flushed", flush_messages="1")

    for number in range(50):
        assert await send(client, plain, batch(number, 100_000)) < 0.2, "the page cache has it"
    # The first flush of a log also writes its leader epochs, in sequence.
    assert await send(client, flushed, batch(0)) < 3 * FLUSH_S * FACTOR_MAX
    for number in range(1, 5):
        took_s = await send(client, flushed, batch(number))
        assert FLUSH_S <= took_s < FLUSH_S * FACTOR_MAX, "on the disk before the answer"
    # Two flushes for the five: the first misses some of them, the second covers the others.
    waits = [send(client, flushed, batch(number)) for number in range(5, 10)]
    assert max(await asyncio.gather(*waits)) < 2 * FLUSH_S * FACTOR_MAX

    slowest_s, numbers = await read(other, plain)
    assert READ_S <= slowest_s < 1.0, "what is far behind the end is cold"
    assert numbers == list(range(50))
    assert (await read(other, flushed))[1] == list(range(10))
    await join(other, "plain")

    await asyncio.sleep(60)
    seen = scrape(node)
    controller = "kafka_controller_kafkacontroller_"
    assert seen.value(controller + "fencedbrokercount") == 0
    assert seen.value(controller + "timedoutbrokerheartbeatcount") == 0
    assert seen.value("kafka_server_raftmetrics_current_epoch") == 1
    assert seen.value("kafka_server_raftmetrics_commit_latency_avg") >= FLUSH_S * 1000
    assert node.ready
    assert disk.blocked == [], "the loop waited for the disk"
    await client.close()
    await other.close()
    await node.stop()
    assert not node.failed.done()


def test_a_slow_disk_slows_what_needs_it_and_nothing_else() -> None:
    loop = VirtualLoop(Network(random.Random(7)))
    loop.run_world(scenario(SlowDisk(), LoopClock(loop, 1_700_000_000_000)))
    assert loop.failures == []
    loop.close()
