"""The journal over a topic in memory: readiness of caches, and results for writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.tiering.journal import Journal
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.topic_link import ReadFrom
from protocol.errors import ErrorCode
from protocol.ids import TopicId
from runtime.tasks import Supervisor
from storage.tiered.cache import APPLIED, SegmentCache
from storage.tiered.records import encode_record
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import PartitionDeletion, RemotePartition
from testkit.memory import tier_topic
from testkit.memory.tier_topic import MemoryLink, MemoryTopic, memory_journal
from testkit.memory.turns import until
from testkit.records.tier import PARTITION, segment, update

OTHER = PARTITION._replace(topic_id=TopicId(bytes(16)))


class World:
    """Brokers over one topic; their supervisor must report no failure."""

    def __init__(self) -> None:
        self.topic = MemoryTopic()
        self.failures: list[str] = []
        self.supervisor = Supervisor(lambda name, error: self.failures.append(f"{name}: {error}"))
        self.journals: list[Journal] = []

    def broker(self, *, link: MemoryLink | None = None, consume_wait_ms: int = 60_000) -> Journal:
        journal = memory_journal(
            self.topic, self.supervisor, link=link, consume_wait_ms=consume_wait_ms
        )
        self.journals.append(journal)
        return journal

    def link(self) -> MemoryLink:
        return MemoryLink(self.topic)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    each = World()
    yield each
    for journal in each.journals:
        await journal.close()
    await each.supervisor.close()
    assert each.failures == []
    assert each.supervisor.survived == {}


async def ready(journal: Journal, partition: RemotePartition = PARTITION) -> SegmentCache:
    await until(lambda: journal.cache(partition) is not None)
    cache = journal.cache(partition)
    assert cache is not None
    return cache


def removal(state: PartitionDeleteState) -> PartitionDeletion:
    return PartitionDeletion(
        partition=PARTITION, broker_id=1, event_timestamp_ms=int(state), state=state
    )


async def test_the_topic_is_made_when_the_first_partition_is_taken_on(world: World) -> None:
    world.topic.exists = False
    journal = world.broker()
    await asyncio.sleep(0)
    assert world.topic.created == 0
    journal.take(PARTITION)
    assert journal.cache(PARTITION) is None
    await ready(journal)
    assert world.topic.created == 1


async def test_writer_gets_the_outcome_of_its_record_and_others_read_it(world: World) -> None:
    leader, follower = world.broker(), world.broker()
    for each in (leader, follower):
        each.take(PARTITION)
    assert await leader.write(segment(1, 0, 9)) == APPLIED
    outcome = await leader.write(update(1, SegmentState.DELETE_FINISHED))
    assert "cannot become" in outcome.refusal
    assert not outcome.changed
    await leader.write(update(1, SegmentState.COPY_FINISHED))
    cache = await ready(follower)
    await until(lambda: any(cache.finished()))


async def test_a_cache_is_given_out_when_the_end_known_then_is_reached(world: World) -> None:
    """S6: nothing is copied, expired or read on the basis of half of the metadata."""
    for record in (segment(1, 0, 9), update(1, SegmentState.COPY_FINISHED)):
        world.topic.add(0, encode_record(record))
    link = world.link()
    link.visible = 1
    journal = world.broker(link=link)
    told: list[RemotePartition] = []
    journal.subscribe(told.append)
    journal.take(PARTITION)
    await until(lambda: link.reads == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert journal.cache(PARTITION) is None
    link.visible = None
    world.topic.wake()
    cache = await ready(journal)
    assert len(list(cache.finished())) == 1
    assert told == [PARTITION]


async def test_a_new_leader_acts_when_all_is_read_that_was_written_before(world: World) -> None:
    """S6: the last copy that its predecessor finished is not repeated."""
    link = world.link()
    journal = world.broker(link=link)
    heard: list[RemotePartition] = []
    journal.take(PARTITION)
    await ready(journal)
    journal.subscribe(heard.append)
    link.visible = 0
    world.topic.add(0, encode_record(segment(1, 0, 9)))
    journal.lead(PARTITION)
    assert journal.leaders_cache(PARTITION) is None
    reads = link.reads
    await until(lambda: link.reads > reads + 1)
    assert journal.leaders_cache(PARTITION) is None
    assert journal.cache(PARTITION) is not None
    link.visible = None
    await until(lambda: journal.leaders_cache(PARTITION) is not None)
    assert heard == [PARTITION], "whoever copies need not wait for his next turn"


async def test_released_partition_that_is_taken_again_is_read_from_the_start(world: World) -> None:
    """S6, KAFKA-16105: the partition's metadata is read from its start again."""
    journal = world.broker()
    journal.take(PARTITION)
    await journal.write(segment(1, 0, 9))
    journal.give_up(PARTITION)
    assert journal.cache(PARTITION) is None
    other = world.broker()
    other.take(PARTITION)
    await other.write(update(1, SegmentState.COPY_FINISHED))
    journal.take(PARTITION)
    cache = await ready(journal)
    assert len(list(cache.finished())) == 1


async def test_a_partition_taken_later_does_not_take_another_ones_readiness(world: World) -> None:
    journal = world.broker()
    journal.take(PARTITION)
    await journal.write(segment(1, 0, 9))
    journal.take(OTHER)
    assert journal.cache(PARTITION) is not None
    assert journal.cache(OTHER) is None
    await ready(journal, OTHER)


async def test_partition_taken_on_is_read_next_to_the_read_that_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new follower and a new leader act on the partition's metadata at once."""
    world.topic.add(0, encode_record(segment(1, 0, 9)))
    monkeypatch.setattr(tier_topic, "READ_WAIT_S", 3600)
    journal = world.broker()
    journal.take(PARTITION)
    await ready(journal)
    for _ in range(20):
        await asyncio.sleep(0)
    journal.give_up(PARTITION)
    journal.take(PARTITION)
    assert journal.cache(PARTITION) is None
    await ready(journal)


async def test_a_record_whose_answer_was_lost_counts_once(world: World) -> None:
    link = world.link()
    link.answers_lost = 1
    journal = world.broker(link=link)
    journal.take(PARTITION)
    await ready(journal)
    assert await journal.write(segment(1, 0, 9)) == APPLIED


async def test_a_writer_tries_again_until_its_time_is_over(world: World) -> None:
    link = world.link()
    journal = world.broker(link=link, consume_wait_ms=50)
    journal.take(PARTITION)
    await ready(journal)
    link.down = True
    with pytest.raises(TierUnavailable, match="in time"):
        await journal.write(segment(1, 0, 9))
    link.down = False
    link.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
    journal = world.broker(link=link)
    journal.take(PARTITION)
    assert await journal.write(segment(1, 0, 9)) == APPLIED


async def test_a_record_that_no_broker_takes_is_not_tried_again(world: World) -> None:
    link = world.link()
    link.refusals = [ErrorCode.MESSAGE_TOO_LARGE]
    journal = world.broker(link=link)
    journal.take(PARTITION)
    await ready(journal)
    with pytest.raises(TierUnavailable):
        await journal.write(segment(1, 0, 9))
    assert world.topic.logs == [[]]


async def test_writer_of_a_released_partition_fails_at_once(world: World) -> None:
    link = world.link()
    journal = world.broker(link=link)
    with pytest.raises(TierUnavailable):
        await journal.write(segment(1, 0, 9))
    journal.take(PARTITION)
    await ready(journal)
    link.visible = 0
    writing = asyncio.ensure_future(journal.write(segment(1, 0, 9)))
    await until(lambda: len(world.topic.logs[0]) == 1)
    journal.give_up(PARTITION)
    with pytest.raises(TierUnavailable, match="released"):
        await writing


async def test_a_new_leader_of_the_topic_is_read_once_the_image_names_it(world: World) -> None:
    journal = world.broker()
    journal.take(PARTITION)
    await ready(journal)
    world.topic.leaders[0] = -1
    journal.published()
    world.topic.leaders[0] = 2
    journal.published()
    assert await journal.write(segment(1, 0, 9)) == APPLIED


async def test_records_deleted_by_the_topics_retention_are_skipped(world: World) -> None:
    for record in (segment(1, 0, 9), segment(2, 10, 19)):
        world.topic.add(0, encode_record(record))
    world.topic.starts[0] = 1
    journal = world.broker()
    journal.take(PARTITION)
    cache = await ready(journal)
    assert len(cache) == 1


async def test_recreated_topic_is_read_from_its_start(world: World) -> None:
    journal = world.broker()
    journal.take(PARTITION)
    await journal.write(segment(1, 0, 9))
    world.topic.made_anew()
    journal.published()
    assert journal.cache(PARTITION) is None
    assert len(await ready(journal)) == 0


async def test_unreadable_record_is_skipped(world: World) -> None:
    world.topic.add(0, b"no record")
    journal = world.broker()
    journal.take(PARTITION)
    assert await journal.write(segment(1, 0, 9)) == APPLIED


async def test_watch_reports_removals_that_are_not_finished(world: World) -> None:
    world.topic.add(0, encode_record(removal(PartitionDeleteState.MARKED)))
    journal = world.broker()
    journal.watch(0, lambda: None)
    assert journal.removals() == []
    await until(lambda: journal.removals() == [PARTITION])
    journal.take(PARTITION)
    for state in (PartitionDeleteState.STARTED, PartitionDeleteState.FINISHED):
        assert await journal.write(removal(state)) == APPLIED
    assert journal.removals() == []
    journal.unwatch(0)
    assert journal.removals() == []


COPIES = (
    segment(1, 0, 9),
    update(1, SegmentState.COPY_FINISHED),
    segment(2, 10, 19),
    update(2, SegmentState.COPY_FINISHED),
)


async def with_copies(world: World, *, compares_epochs: bool = True) -> tuple[Journal, MemoryLink]:
    """Return a journal that has read two finished copies."""
    link = world.link()
    link.compares_epochs = compares_epochs
    journal = world.broker(link=link)
    journal.take(PARTITION)
    for record in COPIES:
        await journal.write(record)
    return journal, link


async def knows(journal: Journal, *numbers: int) -> None:
    """Wait until the journal knows exactly these finished copies."""
    expected = {((number - 1) * 10, number * 10 - 1) for number in numbers}

    def same() -> bool:
        cache = journal.leaders_cache(PARTITION)
        if cache is None:
            return False
        return {(one.start_offset, one.end_offset) for one in cache.finished()} == expected

    async with asyncio.timeout(5):
        await until(same)


@pytest.mark.parametrize("compares_epochs", [True, False])
async def test_journal_beyond_the_topics_end_reads_it_again(
    world: World, compares_epochs: bool
) -> None:
    """S2, S6: a copy without a record on any broker removes no local segment."""
    journal, link = await with_copies(world, compares_epochs=compares_epochs)
    told: list[SegmentCache | None] = []
    journal.subscribe(lambda partition: told.append(journal.cache(partition)))
    world.topic.lose_end(0, 2)
    await knows(journal, 1)
    assert told[0] is None, "subscribers are notified before anything is read again"
    assert told[-1] is journal.cache(PARTITION)
    assert await journal.write(COPIES[2]) == APPLIED
    assert await journal.write(COPIES[3]) == APPLIED
    await knows(journal, 1, 2)


async def test_journal_notices_a_lost_end_that_has_grown_again(world: World) -> None:
    """S6: other brokers may have written more than was lost before this one reads."""
    journal, link = await with_copies(world)
    world.topic.lose_end(0, 1)
    for record in (segment(3, 20, 29), *COPIES[1:], update(3, SegmentState.COPY_FINISHED)):
        world.topic.add(0, encode_record(record))
    async with asyncio.timeout(5):
        await until(lambda: journal.cache(PARTITION) is None)
        await until(lambda: journal.cache(PARTITION) is not None)
    cache = await ready(journal)
    assert sorted(one.start_offset for one in cache.finished()) == [0, 10, 20]


async def test_journal_notices_a_lost_end_when_it_reads_from_the_start(world: World) -> None:
    """S6: another partition is added in the meantime, so nothing is read beyond the new end."""
    journal, link = await with_copies(world, compares_epochs=False)
    world.topic.lose_end(0, 2)
    journal.take(OTHER)
    assert journal.cache(PARTITION) is not None
    await knows(journal, 1)
    await ready(journal, OTHER)


async def test_journal_notices_other_epochs_when_it_reads_from_the_start(world: World) -> None:
    """S6: the topic has grown beyond all offsets that were read."""
    journal, link = await with_copies(world, compares_epochs=False)
    world.topic.lose_end(0, 2)
    for record in (segment(3, 20, 29), segment(4, 30, 39), segment(5, 40, 49)):
        world.topic.add(0, encode_record(record))
    journal.take(OTHER)
    await knows(journal, 1)
    assert len(await ready(journal)) == 4


async def test_reads_requested_before_the_end_was_lost_are_dropped(world: World) -> None:
    """S6: they contain records that no broker has any more."""
    journal, link = await with_copies(world)
    old = await link.read(1, {0: ReadFrom(0)})
    metadata = journal.reader.metadata
    assert metadata is not None
    life = metadata.life(0)
    world.topic.lose_end(0, 2)
    await until(lambda: journal.cache(PARTITION) is None)
    await journal.reader.take_over(metadata, old[0], life)
    assert metadata.seen_to(0) == 0
    await knows(journal, 1)


async def test_writer_of_a_lost_record_fails_at_once(world: World) -> None:
    """S6: the record does not come back; the limit is a minute here."""
    journal, link = await with_copies(world)
    link.visible = 4
    writing = asyncio.ensure_future(journal.write(segment(3, 20, 29)))
    await until(lambda: len(world.topic.logs[0]) == 5)
    world.topic.lose_end(0, 2)
    with pytest.raises(TierUnavailable, match="has lost its end"):
        await asyncio.wait_for(writing, 5)


async def test_watcher_reads_removals_again_after_a_lost_end(world: World) -> None:
    """S10: a removal whose end record is lost is done again."""
    journal = world.broker()
    journal.watch(0, lambda: None)
    journal.take(PARTITION)
    for state in PartitionDeleteState:
        await journal.write(removal(state))
    await until(lambda: journal.removals() == [])
    journal.give_up(PARTITION)
    world.topic.lose_end(0, 2)
    async with asyncio.timeout(5):
        await until(lambda: journal.removals() == [PARTITION])


async def test_deleted_topic_is_forgotten_and_made_again(world: World) -> None:
    """S2, S6: records of a deleted topic have no effect."""
    journal, link = await with_copies(world)
    told: list[SegmentCache | None] = []
    journal.subscribe(lambda partition: told.append(journal.cache(partition)))
    created = world.topic.created
    world.topic.made_anew()
    world.topic.exists = False
    journal.published()
    assert told == [None]
    assert len(await ready(journal)) == 0
    assert world.topic.created == created + 1


async def test_recreated_topic_keeps_local_segments_that_only_the_old_one_listed(
    world: World,
) -> None:
    """S2, S6: subscribers are notified in the event-loop iteration in which the journal learns of
    it."""
    journal, link = await with_copies(world)
    told: list[SegmentCache | None] = []
    journal.subscribe(lambda partition: told.append(journal.cache(partition)))
    link.visible = 4
    writing = asyncio.ensure_future(journal.write(segment(3, 20, 29)))
    await until(lambda: len(world.topic.logs[0]) == 5)
    world.topic.made_anew()
    journal.published()
    assert told == [None]
    with pytest.raises(TierUnavailable, match="was deleted"):
        await asyncio.wait_for(writing, 5)


@pytest.mark.parametrize("state", [PartitionDeleteState.STARTED, PartitionDeleteState.FINISHED])
async def test_removal_without_its_mark_is_not_listed(
    world: World, state: PartitionDeleteState
) -> None:
    """S10: caches refuse the record, so the removal could never be finished (a record of a deleted
    topic that was appended to its successor)."""
    world.topic.add(0, encode_record(removal(state)))
    journal = world.broker()
    journal.watch(0, lambda: None)
    await until(lambda: (watch := journal.watches.get(0)) is not None and watch.ready)
    assert journal.removals() == []
    world.topic.add(0, encode_record(removal(PartitionDeleteState.MARKED)))
    await until(lambda: journal.removals() == [PARTITION])
