"""A simulated cluster with tiered storage: three nodes with both roles over one bucket."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from broker.replication.partition.partition import Partition
from broker.tiering.tier import Tier
from protocol.errors import ApiError
from protocol.ids import TopicId
from protocol.messages.fetch import FetchRequest
from runtime import log as logging
from simulation.clients.client import SimClient, Unknown, checked, fail_on
from simulation.world import traps
from simulation.world.cluster import CLIENT_PORT, Machine, SimCluster
from simulation.world.life import CURRENT_LIFE
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from simulation.world.trace import Trace
from storage.log.log import Log
from storage.objects import FaultyObjects, MemoryObjects
from storage.tiered.values import RemotePartition

T = TypeVar("T")
NODES = 3
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.url": "s3://bucket/prefix",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.replication.factor": "3",
    "log.segment.delete.delay.ms": "1000",
}
TOPIC = "t"
PATIENCE_S = 60.0

Story = Callable[["TierCluster"], Awaitable[None]]


class TierCluster:
    """The run of one seed. `objects` is the bucket behind its weather, `bucket` its content."""

    def __init__(self, seed: int, settings: Mapping[str, str] | None = None) -> None:
        self.loop = VirtualLoop(Network(random.Random(f"{seed}/network")))
        self.chance = random.Random(f"{seed}/story")
        self.bucket = MemoryObjects()
        self.objects = FaultyObjects(self.bucket, random.Random(f"{seed}/objects"))
        self.cluster = SimCluster(
            self.loop, Trace(self.loop.time), seed, open_objects=lambda given: self.objects
        )
        for _ in range(NODES):
            self.cluster.add({**SETTINGS, **(settings or {})})
        self.client: SimClient

    @property
    def machines(self) -> list[Machine]:
        return self.cluster.machines

    def run(self, story: Story) -> None:
        """Boot all nodes, and run the story on a client's host."""
        try:
            with traps.locked(), logging.captured():
                self.loop.run_world(self._main(story))
        finally:
            self.loop.close()
        assert not self.loop.failures

    async def _main(self, story: Story) -> None:
        CURRENT_HOST.set("client")
        await self.boot(*self.machines)
        self.client = SimClient([(machine.host, CLIENT_PORT) for machine in self.machines])
        await story(self)
        await self.client.close()

    async def boot(self, *machines: Machine) -> None:
        """Boot machines and wait until they are ready."""
        lives = [machine.boot() for machine in machines]
        await asyncio.wait_for(asyncio.gather(*(life.ready for life in lives)), PATIENCE_S)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let virtual time pass until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - looking costs no virtual time
                await asyncio.sleep(0.05)

    async def asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a client's request until it succeeds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await ask()
                except (Unknown, ApiError):
                    self.client.cluster.cache.forget(TOPIC)
                    await asyncio.sleep(0.2)

    async def create(self, configs: Mapping[str, str] | None = None) -> RemotePartition:
        """Create the tiered topic, one partition on all nodes. Returns: its name in the tier."""
        given = {"remote.storage.enable": "true", "min.insync.replicas": "2", **(configs or {})}
        await self.asked(lambda: self.client.create_topic(TOPIC, 1, given, NODES))
        partition = self.replica(await self.leader())
        assert partition is not None
        return RemotePartition(TopicId(partition.topic_id), 0, TOPIC)

    def tier(self, machine: Machine) -> Tier:
        """Return the tier of a running machine."""
        node = machine.life.node if machine.life is not None else None
        assert node is not None and node.broker is not None and node.broker.context is not None
        assert node.broker.context.tier is not None
        return node.broker.context.tier

    async def leader(self) -> Machine:
        """Return the machine that leads the partition and knows it."""
        found: list[Machine] = []

        def there() -> bool:
            found[:] = [one for one in self.machines if self._leads(one)]
            return len(found) == 1

        await self.until(there)
        return found[0]

    def replica(self, machine: Machine) -> Partition | None:
        """The machine's replica of the partition."""
        life = machine.life
        if life is None or not life.alive or life.node is None or life.node.broker is None:
            return None
        return life.node.broker.replicas.get(TOPIC, 0)

    def log(self, machine: Machine) -> Log | None:
        """Return the log of the machine's replica."""
        partition = self.replica(machine)
        return None if partition is None else partition.log

    def _leads(self, machine: Machine) -> bool:
        partition = self.replica(machine)
        return partition is not None and partition.is_leader

    async def produce(self, count: int) -> dict[int, bytes]:
        """Produce `count` records acknowledged by all replicas. Returns: the records by offset.

        Others may be in the log, too: after a lost answer the record is sent again.
        """
        sent: dict[int, bytes] = {}
        while len(sent) < count:
            value = b"%d" % len(sent) * 50
            offset = await self.asked(partial(self._send, value))
            sent[offset] = value
        return sent

    async def _send(self, value: bytes) -> int:
        now_ms = self.machines[0].clock.now_ms()
        return await self.client.produce(TOPIC, 0, [value], now_ms=now_ms)

    async def read(self, count: int) -> dict[int, bytes]:
        """Read the first `count` records from the log start on, from the current leader, by
        offset."""
        found: dict[int, bytes] = {}
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                at = max(found, default=-1) + 1
                try:
                    found.update(await self.client.poll(TOPIC, 0, at))
                except (Unknown, ApiError):
                    await asyncio.sleep(0.2)
        return found

    async def fetched(self, machine: Machine, offset: int) -> dict[int, bytes]:
        """Return the records of one fetch from this broker. Raises: Unknown, ApiError."""
        replica = self.replica(machine)
        assert replica is not None
        wanted = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topic = FetchRequest.FetchTopic(topic_id=replica.topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        answer = await self.client._once(machine.node_id, request)
        data = answer.responses[0].partitions[0]
        fail_on(data.error_code)
        assert isinstance(data.records, bytes | bytearray | memoryview)
        records = checked(data.records)
        return {one.offset: one.value or b"" for one in records if one.offset >= offset}

    async def inside(self, machine: Machine, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as the machine's node would."""
        context = contextvars.copy_context()
        context.run(CURRENT_HOST.set, machine.host)
        context.run(CURRENT_LIFE.set, machine.life)
        result: T = await self.loop.create_task(work, context=context)
        return result
