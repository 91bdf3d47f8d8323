from __future__ import annotations

from typing import Any

from metalog.image.delta import MetadataDelta
from metalog.image.values import MetadataImage
from protocol.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    NoOpRecord,
    TopicRecord,
)
from runtime.errors import InvariantViolated
from storage.files import MemoryFiles
from testkit.memory.quorum_nodes import RunningQuorum


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"_"))


def created_topics(delta: MetadataDelta) -> list[str]:
    changes = delta.topics.values()
    return [c.after.name for c in changes if c.before is None and c.after is not None]


async def test_publishers_get_deltas_after_whole_batches() -> None:
    seen: list[Any] = []

    def publisher(delta: MetadataDelta, image: MetadataImage) -> None:
        seen.append((sorted(created_topics(delta)), image.provenance.offset))

    async with RunningQuorum(MemoryFiles()) as q:
        q.loader.add_publisher(publisher)
        await q.commit(topic("a"), topic("b"))
        await q.commit(NoOpRecord())
        assert [entry for entry in seen if entry[1] > 0] == [(["a", "b"], 2), ([], 3)]
        late: list[Any] = []
        q.loader.add_publisher(lambda delta, image: late.append(len(created_topics(delta))))
        assert late == [2]


async def test_a_transaction_is_published_when_it_ends() -> None:
    async with RunningQuorum(MemoryFiles()) as q:
        await q.commit(BeginTransactionRecord(name="x"), topic("a"))
        assert not q.loader.image.topics.by_id
        await q.commit(topic("b"))
        assert not q.loader.image.topics.by_id
        assert not q.node.snapshot_due(q.loader.image)
        await q.commit(EndTransactionRecord())
        assert set(q.loader.image.topics.by_name) == {"a", "b"}


async def test_a_record_that_does_not_replay_stops_the_node() -> None:
    async with RunningQuorum(MemoryFiles()) as q:
        q.node.append(1, [FenceBrokerRecord(id=3, epoch=4)])
        await q.until(lambda: bool(q.failures))
        error = q.failures[0][1]
        assert isinstance(error, InvariantViolated)
        assert "offset 1" in str(error) and "FenceBrokerRecord(id=3, epoch=4)" in str(error)


async def test_publisher_after_snapshot_receives_whole_image() -> None:
    files = MemoryFiles()
    async with RunningQuorum(files) as q:
        await q.commit(topic("a"))
        await q.node.create_snapshot(q.loader.image)
    q = RunningQuorum(files)
    created: list[str] = []
    q.loader.add_publisher(lambda d, i: created.extend(created_topics(d)))
    async with q:
        await q.commit(NoOpRecord())
        assert created == ["a"]


async def test_snapshot_is_loaded_in_slices_and_published_whole() -> None:
    async with RunningQuorum(MemoryFiles()) as q:
        for n in range(3):
            await q.commit(*(topic(f"{n}-{m}") for m in range(300)))
        written = await q.node.create_snapshot(q.loader.image)
        assert written is not None
        whole, steps = q.loader.image, 0
        for _ in q.loader.handle_snapshot(q.node.log.snapshots.open(written)):
            steps += 1
            assert q.loader.image is whole, "nobody sees half of it"
        assert steps >= 4, "the loop has turns in between"
        assert q.loader.image is not whole and q.loader.image == whole
        assert q.loader.log_image.end_offset == written.offset
