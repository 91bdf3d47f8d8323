"""Brokers with the roles of a tier, and remote segments of another leader."""

from __future__ import annotations

import random
from collections.abc import Iterator

from broker.replication.partition.partition import Partition
from broker.tiering.journal import Journal
from broker.tiering.removal import Remover
from broker.tiering.roles import Roles
from protocol.ids import TopicId
from runtime.clock import SystemClock
from storage.files import Files
from storage.objects import MemoryObjects, Objects
from storage.tiered.layout import keys_to_delete
from storage.tiered.records import METADATA_TOPIC, decode_record
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import PartitionDeletion, RemotePartition, RemoteSegment
from testkit.memory.broker import LOG_DIR, NODE, OTHER, Harness, topic_id
from testkit.memory.tier_topic import MemoryLink, MemoryTopic, memory_journal
from testkit.records.tier import segment, update

ON = {
    "remote_log_storage_system_enable": "true",
}
TIERED = {"remote.storage.enable": "true"}
OFF = {"remote.log.delete.on.disable": "true"}
REMOTE = RemotePartition(TopicId(topic_id(1)), 0, "t")


class User:
    """A recorder of a driver's notifications."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def led(self, partition: Partition, remote: RemotePartition) -> None:
        assert partition.is_leader
        self.heard.append(f"led {remote.topic}-{remote.partition}")

    def followed(self, partition: Partition, remote: RemotePartition) -> None:
        assert not partition.is_leader
        self.heard.append(f"followed {remote.topic}-{remote.partition}")

    def stopped(self, remote: RemotePartition) -> None:
        self.heard.append(f"stopped {remote.topic}-{remote.partition}")


class Broker(Harness):
    """A broker with the roles of a tier, over a metadata topic that other brokers lead."""

    def __init__(
        self,
        topic: MemoryTopic,
        objects: Objects,
        *,
        node_id: int = NODE,
        files: Files | None = None,
        link: MemoryLink | None = None,
    ) -> None:
        super().__init__(node_id=node_id, files=files, clock=SystemClock(), **ON)
        self.topic = topic
        self.steps: list[str] = []
        self.link = link or MemoryLink(topic)
        self.journal: Journal = memory_journal(topic, self.supervisor, link=self.link)
        self.remover = Remover(
            node_id=node_id,
            journal=self.journal,
            store=SegmentStore(objects),
            save_log_starts=self.save_log_starts,
            at_once=lambda: 2,
            supervisor=self.supervisor,
            clock=self.clock,
            rng=random.Random(1),
        )
        self.roles = Roles(
            node_id=node_id,
            journal=self.journal,
            remover=self.remover,
            settings=self.settings.of,
            metadata=self.metadata,
            logs=self.logs,
            supervisor=self.supervisor,
            clock=self.clock,
            rng=random.Random(1),
        )
        self.user = User()
        self.roles.add(self.user)
        self.connect(tier=self.roles)
        self.create_topic(METADATA_TOPIC, number=99, replicas=[OTHER], leader=OTHER)

    async def save_log_starts(self) -> None:
        self.steps.append("log starts are saved")

    def folders(self) -> list[str]:
        """Return folder names without their unique part."""
        names = [name for name in self.files.listdir(LOG_DIR) if not name.startswith("__")]
        return sorted(name.partition(".")[0] for name in names if name[0] == "t" and "-" in name)

    def written(self) -> Iterator[object]:
        for log in self.topic.logs:
            yield from map(decode_record, log)

    def marks(self) -> list[tuple[RemotePartition, PartitionDeleteState]]:
        return [
            (one.partition, one.state)
            for one in self.written()
            if isinstance(one, PartitionDeletion)
        ]

    async def close(self) -> None:
        await self.roles.close()
        await self.remover.close()
        await self.journal.close()
        await self.supervisor.close()
        assert self.failures == []
        assert self.supervisor.survived == {}


async def remote_segments(
    broker: Broker, bucket: MemoryObjects, *, partition: RemotePartition = REMOTE
) -> list[RemoteSegment]:
    """Write and return a finished copy of another leader, and one under way."""
    other = memory_journal(broker.topic, broker.supervisor)
    other.take(partition)
    segments = [segment(1, 0, 9, partition=partition), segment(2, 10, 19, partition=partition)]
    for one in segments:
        await other.write(one)
        for key in keys_to_delete(one):
            await bucket.put(key, b"data")
    await other.write(update(1, SegmentState.COPY_FINISHED, partition=partition))
    await other.close()
    return segments
