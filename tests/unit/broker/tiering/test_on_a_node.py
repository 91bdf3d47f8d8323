"""The journal of a whole node, over its own listener and its own replica of the topic."""

from __future__ import annotations

from broker.tiering.tier import Tier
from kraftbox.node import Node
from storage.files import MemoryFiles
from storage.objects import MemoryObjects
from storage.tiered.cache import APPLIED
from storage.tiered.records import METADATA_TOPIC
from storage.tiered.states import SegmentState
from testkit.memory.node import running_node
from testkit.memory.turns import until
from testkit.records.tier import PARTITION, segment, update

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.url": "s3://bucket/prefix",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
}


def tier_of(node: Node) -> Tier:
    assert node.broker is not None
    assert node.broker.context is not None
    tier = node.broker.context.tier
    assert tier is not None
    return tier


async def test_metadata_written_before_a_restart_is_read_after_it() -> None:
    files, bucket = MemoryFiles(), MemoryObjects()
    async with running_node(files, SETTINGS, open_objects=lambda given: bucket) as node:
        journal = tier_of(node).journal
        assert node.broker is not None
        assert node.broker.metadata.topic(METADATA_TOPIC) is None
        journal.take(PARTITION)
        assert await journal.write(segment(1, 0, 9)) == APPLIED
        assert await journal.write(update(1, SegmentState.COPY_FINISHED)) == APPLIED
        topic = node.broker.metadata.topic(METADATA_TOPIC)
        assert topic is not None
        assert len(topic.partitions) == 3
        config = node.broker.settings.of(METADATA_TOPIC)
        assert config.log.retention_ms == -1
        assert not config.tiered
    async with running_node(files, SETTINGS, open_objects=lambda given: bucket) as node:
        journal = tier_of(node).journal
        journal.take(PARTITION)
        await until(lambda: journal.cache(PARTITION) is not None)
        cache = journal.cache(PARTITION)
        assert cache is not None
        assert [one.end_offset for one in cache.finished()] == [9]
