"""A follower whose leader has copied the beginning of its log into the tier."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import ListOffsetsReset
from broker.tiering.following import TierBeginnings
from broker.tiering.record_writer import TierUnavailable
from protocol.batch.records import Producer
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.metadata.config_record import ConfigRecord
from storage.objects import FaultyObjects, MemoryObjects
from storage.tiered.cache import SegmentCache
from storage.tiered.values import RemotePartition
from testkit.memory.broker import batch
from testkit.memory.replicas import Cluster
from testkit.memory.tier import MemoryTier, memory_reader, tiered

ON = {
    "remote_log_storage_system_enable": "true",
}


def _question(message: Any) -> int | str:
    """Return the timestamp of a ListOffsets request, or else the name of the request."""
    if isinstance(message, ListOffsetsRequest):
        return message.topics[0].partitions[0].timestamp
    return type(message).__name__


class Link:
    """A link to the leader's real handlers."""

    def __init__(self, c: Cluster) -> None:
        self._cluster = c
        self.asked: list[int | str] = []
        self.names_no_epoch = False

    async def ask(self, message: Any) -> Any:
        self.asked.append(_question(message))
        answer = self._cluster[1].body(message)
        if self.names_no_epoch and isinstance(answer, ListOffsetsResponse):
            answer.topics[0].partitions[0].leader_epoch = -1
        return answer


class World:
    """Broker 1 leads and has copied all but the last records; 2 has an empty log."""

    def __init__(self) -> None:
        self.cluster = Cluster(2, **ON)
        self.link = Link(self.cluster)
        self.objects = FaultyObjects(MemoryObjects(), random.Random(1))
        self.tier = MemoryTier(self.objects)
        self.saved = 0
        self.known = asyncio.Event()
        self.known.set()
        for name, value in (("remote.storage.enable", "true"), ("retention.ms", "-1")):
            self.cluster.records.append(
                ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
            )
        self.cluster.create(1, 2, isr=[1])
        memory_reader(self.tier, self.cluster[1])
        self.beginnings = TierBeginnings(
            ready=self.ready,
            cache_of=self.tier.cache_of,
            store=self.tier.store,
            at_once=lambda: 1,
            save_log_starts=self.save,
            carry_out=self.cluster[2].replicas.carry_out,
        )

    async def save(self) -> None:
        self.saved += 1

    async def ready(self, partition: RemotePartition) -> SegmentCache:
        await self.known.wait()
        cache = self.tier.cache_of(partition)
        if cache is None:
            raise TierUnavailable(f"{partition} is given up")
        return cache

    async def fill(self, local: bytes = b"local") -> None:
        """Append segments of epochs 0 to 2 that only the tier keeps, then `local`, of epoch 2, to
        the disk."""
        leader = self.cluster[1]
        for epoch in range(3):
            leader.append(b"%d" % epoch, b"more")
            leader.produce(batch(b"p", producer=Producer(7, 0, epoch)))
            if epoch < 2:
                self.cluster.change(leader=1)
                await tiered(self.tier, leader.log)
        await tiered(self.tier, leader.log)
        if local:
            leader.append(local)
        self.objects.backing = self.tier.bucket

    def moved(self) -> Reset:
        partition = self.cluster[2].partition()
        error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        return Reset(partition, error, partition.leader_epoch, -1)

    async def reset(self) -> None:
        await ListOffsetsReset(2, self.beginnings).reset(self.link, self.moved())
