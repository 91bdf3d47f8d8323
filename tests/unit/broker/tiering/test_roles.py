"""Effects of role, setting and topic changes on the tier, and removal of a topic's remote data."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from protocol.ids import TopicId
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.topic_record import TopicRecord
from storage.objects import FaultyObjects, MemoryObjects, Weather
from storage.tiered.layout import keys_to_delete
from storage.tiered.records import encode_record
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import RemotePartition, SegmentUpdate
from testkit.memory.broker import LOG_DIR, NODE, OTHER, topic_id
from testkit.memory.tier_topic import MemoryTopic, memory_journal
from testkit.memory.turns import until
from testkit.records.tier import segment
from tests.unit.broker.tiering.removers import OFF, REMOTE, TIERED, Broker, remote_segments


@pytest.fixture
def bucket() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
async def broker(bucket: MemoryObjects) -> AsyncIterator[Broker]:
    each = Broker(MemoryTopic(), bucket)
    yield each
    await each.close()


def deleted(broker: Broker) -> list[int]:
    """Return the last byte of each id whose segment was deleted permanently."""
    return [
        one.segment_id[-1]
        for one in broker.written()
        if isinstance(one, SegmentUpdate) and one.state is SegmentState.DELETE_FINISHED
    ]


async def test_drivers_get_roles_in_order(broker: Broker) -> None:
    broker.create_topic(configs=TIERED, replicas=[NODE, OTHER])
    broker.change(leader=OTHER)
    broker.change(leader=NODE)
    broker.change(replicas=[OTHER], isr=[OTHER], leader=OTHER)
    assert broker.user.heard == ["led t-0", "followed t-0", "led t-0", "stopped t-0"]
    assert broker.journal.cache(REMOTE) is None
    assert broker.marks() == []
    assert broker.folders() == ["t-0"], "deleted as that of any replica that moved away"


async def test_new_leader_requests_the_end_of_the_metadata(broker: Broker) -> None:
    """S6: a new leader first reads all metadata written before its election."""
    broker.create_topic(configs=TIERED, replicas=[NODE, OTHER], leader=OTHER)
    await broker.journal.ready(REMOTE)
    assert broker.journal.leaders_cache(REMOTE) is not None
    broker.change(leader=NODE)
    assert broker.journal.leaders_cache(REMOTE) is None
    await until(lambda: broker.journal.leaders_cache(REMOTE) is not None)


async def test_a_topic_that_is_not_tiered_is_nobodys(broker: Broker) -> None:
    broker.create_topic(replicas=[NODE, OTHER])
    broker.change(leader=OTHER)
    broker.delete_topic()
    assert broker.user.heard == []


async def test_tiering_begins_and_ends_with_the_topics_setting(broker: Broker) -> None:
    broker.create_topic()
    broker.set_config("t", "remote.storage.enable", "true")
    broker.set_config("t", "retention.ms", "77")
    broker.set_config("t", "remote.storage.enable", "false")
    assert broker.user.heard == ["led t-0", "stopped t-0"]


async def test_a_deleted_topic_is_marked_before_its_folder_goes(broker: Broker) -> None:
    broker.create_topic(configs=TIERED)
    await until(lambda: broker.journal.cache(REMOTE) is not None)
    broker.link.down = True
    broker.delete_topic()
    assert broker.user.heard == ["led t-0", "stopped t-0"]
    (folder,) = broker.logs.strays
    assert broker.files.isdir(folder)
    broker.link.down = False
    await until(lambda: broker.logs.strays == [])
    assert broker.marks() == [(REMOTE, PartitionDeleteState.MARKED)]
    await broker.logs.remove_discarded()
    assert not broker.files.exists(folder)


async def test_recreated_topic_keeps_its_own_segments(broker: Broker) -> None:
    broker.create_topic(configs=TIERED)
    broker.replay(
        RemoveTopicRecord(topic_id=topic_id(1)),
        TopicRecord(name="t", topic_id=topic_id(2)),
        PartitionRecord(
            partition_id=0, topic_id=topic_id(2), replicas=[NODE], isr=[NODE], leader=NODE
        ),
    )
    broker.set_config("t", "remote.storage.enable", "true")
    await until(lambda: broker.logs.strays == [])
    assert broker.marks() == [(REMOTE, PartitionDeleteState.MARKED)]
    assert broker.user.heard == ["led t-0", "stopped t-0", "led t-0"]
    assert broker.partition().topic_id == topic_id(2)


@pytest.mark.parametrize("has_segments", [True, False])
async def test_stray_folder_of_an_earlier_process_is_marked_if_it_has_segments(
    bucket: MemoryObjects, has_segments: bool
) -> None:
    before = Broker(MemoryTopic(), bucket)
    before.create_topic(configs=TIERED)
    if has_segments:
        await remote_segments(before, bucket)
    before.link.down = True
    before.delete_topic()
    await before.close()
    after = Broker(before.topic, bucket, files=before.files)
    after.roles.look_at_strays(list(after.logs.strays))
    assert len(after.logs.strays) == 1
    await until(lambda: not after.roles._marking)
    marked = [(REMOTE, PartitionDeleteState.MARKED)]
    assert after.marks() == (marked if has_segments else [])
    assert len(after.logs.strays) == (0 if has_segments else 1)
    await after.close()


async def test_a_stray_of_a_topic_that_is_there_is_not_marked(
    bucket: MemoryObjects, broker: Broker
) -> None:
    broker.create_topic(configs=TIERED, replicas=[OTHER], leader=OTHER)
    await remote_segments(broker, bucket)
    broker.roles.folder_kept("t", 0, topic_id(1), f"{LOG_DIR}/t-0.x-stray")
    assert not broker.roles._marking


async def test_the_topics_leader_removes_what_was_marked(
    broker: Broker, bucket: MemoryObjects
) -> None:
    await remote_segments(broker, bucket)
    namesake = RemotePartition(TopicId(topic_id(2)), 0, "t")
    (kept, _) = await remote_segments(broker, bucket, partition=namesake)
    broker.create_topic(configs=TIERED)
    broker.delete_topic()
    await until(lambda: broker.logs.strays == [])
    broker.remover.elected(0, 5)
    await until(lambda: broker.marks()[-1:] == [(REMOTE, PartitionDeleteState.FINISHED)])
    assert [state for _, state in broker.marks()] == list(PartitionDeleteState)
    assert bucket.keys == sorted(
        key for one in (kept, segment(2, 10, 19, partition=namesake)) for key in keys_to_delete(one)
    )
    await until(lambda: broker.journal.removals() == [])


async def test_copier_without_the_removal_record_cannot_begin_a_copy(
    broker: Broker,
) -> None:
    broker.create_topic(configs=TIERED)
    broker.delete_topic()
    await until(lambda: broker.marks() != [])
    late = memory_journal(broker.topic, broker.supervisor)
    late.take(REMOTE)
    outcome = await late.write(segment(3, 0, 9, partition=REMOTE))
    assert "removal" in outcome.refusal
    await late.close()


async def test_a_removal_is_tried_again_and_goes_on_elsewhere(bucket: MemoryObjects) -> None:
    faulty = FaultyObjects(bucket, random.Random(1), Weather(down=True))
    first = Broker(MemoryTopic(), faulty)
    await remote_segments(first, bucket)
    first.create_topic(configs=TIERED)
    first.delete_topic()
    first.remover.elected(0, 5)
    await until(lambda: PartitionDeleteState.STARTED in [state for _, state in first.marks()])
    assert first.marks()[-1] != (REMOTE, PartitionDeleteState.FINISHED)
    second = Broker(first.topic, bucket, node_id=OTHER)
    first.topic.leaders[0] = OTHER
    first.remover.resigned(0, 6)
    first.journal.published()
    second.remover.elected(0, 6)
    await until(lambda: second.marks()[-1] == (REMOTE, PartitionDeleteState.FINISHED))
    assert bucket.keys == []
    for each in (first, second):
        await each.close()


async def test_tiering_switched_off_with_deletion_clears_and_may_begin_again(
    broker: Broker, bucket: MemoryObjects
) -> None:
    """KIP-950: switching tiering off with deletion removes the copies; it can be switched on
    again."""
    await remote_segments(broker, bucket)
    broker.create_topic(configs={**TIERED, "remote.log.delete.on.disable": "true"})
    broker.set_config("t", "remote.storage.enable", "false")
    await until(lambda: bucket.keys == [])
    await until(lambda: deleted(broker) == [1, 2])
    assert broker.marks() == []
    assert broker.steps[:1] == ["log starts are saved"]
    broker.set_config("t", "remote.storage.enable", "true")
    outcome = await broker.journal.write(segment(3, 20, 29, partition=REMOTE))
    assert outcome.changed
    assert broker.user.heard == ["led t-0", "stopped t-0", "led t-0"]


@pytest.mark.parametrize("meanwhile", [True, False])
async def test_copy_read_after_the_clearing_is_cleared_too(
    broker: Broker, bucket: MemoryObjects, meanwhile: bool
) -> None:
    """S3: its start record was written before, and committed only after all other copies were
    gone."""
    await remote_segments(broker, bucket)
    broker.create_topic(configs={**TIERED, **OFF})
    broker.set_config("t", "remote.storage.enable", "false")
    if not meanwhile:
        await until(lambda: deleted(broker) == [1, 2] and not broker.remover._tasks)
    late = segment(3, 20, 29, partition=REMOTE)
    for key in keys_to_delete(late):
        await bucket.put(key, b"data")
    broker.topic.add(0, encode_record(late))
    await until(lambda: deleted(broker) == [1, 2, 3])
    assert bucket.keys == []


async def test_copy_read_as_the_clearing_ends_is_cleared_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: the remover has checked for the last time, and no other broker removes copies."""
    remove_once = broker.remover._remove_once
    late = segment(3, 20, 29, partition=REMOTE)

    async def removed(*arguments: Any, **kinds: bool) -> bool:
        done = await remove_once(*arguments, **kinds)
        if late not in broker.written():
            broker.topic.add(0, encode_record(late))
            await until(lambda: len(broker.journal.cache(REMOTE) or ()) == 1)
        return done

    monkeypatch.setattr(broker.remover, "_remove_once", removed)
    broker.create_topic(configs={**TIERED, **OFF})
    broker.set_config("t", "remote.storage.enable", "false")
    await until(lambda: deleted(broker) == [3])


def _follows(broker: Broker) -> None:
    broker.change(leader=OTHER)


def _stops(broker: Broker) -> None:
    broker.change(replicas=[OTHER], isr=[OTHER], leader=OTHER)


def _keeps_copies(broker: Broker) -> None:
    broker.set_config("t", "remote.log.delete.on.disable", "false")
    broker.change(leader=NODE)


@pytest.mark.parametrize("becomes", [_follows, _stops, _keeps_copies])
async def test_only_the_leader_that_clears_listens_for_more_to_clear(
    broker: Broker, becomes: Callable[[Broker], None]
) -> None:
    broker.create_topic(configs={**TIERED, **OFF}, replicas=[NODE, OTHER])
    broker.set_config("t", "remote.storage.enable", "false")
    await until(lambda: not broker.remover._tasks)
    assert broker.journal.cache(REMOTE) is not None
    becomes(broker)
    assert broker.journal.cache(REMOTE) is None


async def test_topic_that_is_tiered_again_is_not_cleared(
    broker: Broker, bucket: MemoryObjects
) -> None:
    broker.create_topic(configs={**TIERED, **OFF}, replicas=[NODE, OTHER])
    broker.set_config("t", "remote.storage.enable", "false")
    await until(lambda: not broker.remover._tasks)
    broker.set_config("t", "remote.storage.enable", "true")
    await remote_segments(broker, bucket)
    await until(lambda: len(broker.journal.cache(REMOTE) or ()) == 2)
    assert not broker.remover._tasks
    assert bucket.keys != []
    assert len(broker.journal.taken) == broker.journal.taken.count(REMOTE) == 1


async def test_a_new_leader_goes_on_with_the_clearing(
    broker: Broker, bucket: MemoryObjects
) -> None:
    await remote_segments(broker, bucket)
    broker.create_topic(
        configs={"remote.log.delete.on.disable": "true"}, replicas=[NODE, OTHER], leader=OTHER
    )
    assert bucket.keys != []
    broker.change(leader=NODE)
    starts = broker.logs.checkpoints.log_starts()
    assert [start for where, start in starts.items() if where[0] == "t"] == [0], "S4: saved first"
    await until(lambda: bucket.keys == [])


@pytest.mark.parametrize("leader", [OTHER, -1])
async def test_uncleared_segments_are_marked_when_the_topic_is_deleted(
    broker: Broker, bucket: MemoryObjects, leader: int
) -> None:
    """S10: tiering was switched off, and the broker that would remove the copies is gone."""
    await remote_segments(broker, bucket)
    configs = {**TIERED, **OFF}
    broker.create_topic(configs=configs, replicas=[NODE, OTHER], leader=leader)
    broker.set_config("t", "remote.storage.enable", "false")
    broker.delete_topic()
    await until(lambda: broker.logs.strays == [])
    assert broker.marks() == [(REMOTE, PartitionDeleteState.MARKED)]


async def test_so_it_is_where_it_was_switched_off_in_an_earlier_life(
    broker: Broker, bucket: MemoryObjects
) -> None:
    """S10: the mark is also written if an earlier incarnation saw the switch."""
    await remote_segments(broker, bucket)
    broker.create_topic(configs=OFF, replicas=[NODE, OTHER], leader=-1)
    broker.delete_topic()
    await until(lambda: broker.logs.strays == [])
    assert broker.marks() == [(REMOTE, PartitionDeleteState.MARKED)]


@pytest.mark.parametrize("leader", [NODE, OTHER])
async def test_folder_without_remote_segments_is_removed_without_a_mark(
    broker: Broker, leader: int
) -> None:
    broker.create_topic(configs={**TIERED, **OFF}, replicas=[NODE, OTHER], leader=leader)
    broker.set_config("t", "remote.storage.enable", "false")
    broker.delete_topic()
    assert len(broker.logs.strays) == 1
    await until(lambda: broker.logs.strays == [])
    assert broker.marks() == []


async def test_a_replica_that_moves_away_when_tiering_is_off_leaves_no_folder(
    broker: Broker,
) -> None:
    broker.create_topic(configs={**TIERED, **OFF}, replicas=[NODE, OTHER], leader=OTHER)
    broker.set_config("t", "remote.storage.enable", "false")
    broker.change(replicas=[OTHER], isr=[OTHER], leader=OTHER)
    assert broker.logs.strays == []
    assert broker.marks() == []
