"""Partitions created, changed and removed with the image; disk errors stop the node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.replication.partition.role import ReplicaRole
from broker.replication.replicas.replica_manager import AT_ONCE_MAX
from metalog.image.delta import MetadataDelta
from metalog.image.values import EMPTY_IMAGE
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.topic_record import TopicRecord
from runtime.errors import InvariantViolated
from runtime.slices import SLICE_MS
from testkit.loop_holds import ToilClock, ToilingFiles, loop_holds
from testkit.memory.broker import LOG_DIR, NODE, OTHER, Harness, batch, topic_id
from testkit.memory.replicas import TOPIC, Cluster
from testkit.memory.turns import until


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int | None]] = []

    def elected(self, partition: int, leader_epoch: int) -> None:
        self.heard.append(("elected", partition, leader_epoch))

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        self.heard.append(("resigned", partition, leader_epoch))


def folders(h: Harness) -> list[str]:
    return [name for name in h.files.listdir(LOG_DIR) if h.files.isdir(f"{LOG_DIR}/{name}")]


async def test_only_replicas_of_this_broker_get_logs() -> None:
    h = Harness()
    h.create_topic("mine", number=1, partitions=2)
    h.create_topic("other", number=2, replicas=[OTHER], leader=OTHER)
    assert folders(h) == ["mine-0", "mine-1"]
    assert len(list(h.replicas)) == 2


async def test_a_deleted_topics_logs_leave_at_once() -> None:
    h = Harness()
    h.create_topic()
    h.produce(batch(b"a"))
    partition = h.partition()
    h.delete_topic()
    assert partition.role is ReplicaRole.DELETED
    assert h.replicas.get("t", 0) is None
    assert all(name.endswith("-delete") for name in folders(h))
    assert h.replicas.deleted_counters.messages_in == 1


async def test_recreated_topic_has_an_empty_log() -> None:
    h = Harness()
    h.create_topic()
    h.produce(batch(b"old"))
    before = h.metadata.image

    h.replay(
        RemoveTopicRecord(topic_id=topic_id(1)),
        TopicRecord(name="t", topic_id=topic_id(2)),
        PartitionRecord(
            partition_id=0, topic_id=topic_id(2), replicas=[NODE], isr=[NODE], leader=NODE
        ),
    )
    assert h.metadata.image is not before
    assert h.partition().topic_id == topic_id(2)
    assert h.partition().log.log_end_offset == 0
    assert [name for name in folders(h) if not name.endswith("-delete")] == ["t-0"]


@pytest.mark.parametrize("made_again", [False, True])
async def test_the_minimum_of_a_deleted_topic_does_not_fall_before_it_goes(
    made_again: bool,
) -> None:
    """H3: the topic's min ISR goes with it, so a lower one must not acknowledge its waiting
    produces."""
    h = Harness()
    minimum = "min.insync.replicas"
    h.create_topic(replicas=[NODE, OTHER], configs={minimum: "2"})
    waiting = h.produce(batch(b"a"), acks=-1)
    h.change(isr=[NODE])
    deleted = h.partition()
    records: list[Any] = [RemoveTopicRecord(topic_id=topic_id(1))]
    if made_again:
        records += [
            TopicRecord(name="t", topic_id=topic_id(2)),
            ConfigRecord(resource_type=2, resource_name="t", name=minimum, value="1"),
            PartitionRecord(
                partition_id=0, topic_id=topic_id(2), replicas=[NODE], isr=[NODE], leader=NODE
            ),
        ]
    h.replay(*records)
    assert deleted.log.high_watermark == 0
    (answer,) = (await waiting).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_replica_that_moves_away_and_back() -> None:
    h = Harness()
    h.create_topic()
    h.produce(batch(b"a"))
    h.change(replicas=[OTHER], isr=[OTHER], leader=OTHER)
    assert h.replicas.get("t", 0) is None
    h.change(replicas=[NODE], isr=[NODE], leader=NODE)
    assert h.partition().is_leader
    assert h.partition().log.log_end_offset == 0


async def test_many_new_partitions_are_made_in_slices() -> None:
    h = Harness()
    scheduled: list[str] = []
    h.connect(schedule=lambda: scheduled.append("again"))
    h.create_topic(partitions=10)
    assert scheduled == ["again"]
    with pytest.raises(ApiError) as caught:
        h.replicas.find("t", 3)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert h.replicas.advance(0.0)
    assert len(list(h.replicas)) == 1
    # The newest image counts, not the one that put a partition into the backlog.
    h.change(index=3, leader=OTHER, replicas=[OTHER], isr=[OTHER])
    while h.replicas.advance(0.0):
        pass
    assert len(list(h.replicas)) == 9


@pytest.mark.slow
async def test_making_and_removing_a_thousand_partitions_does_not_hold_the_loop() -> None:
    clock = ToilClock()
    h = Harness(clock=clock, files=ToilingFiles(clock))
    running = False

    def advance() -> None:
        nonlocal running
        running = h.replicas.advance(SLICE_MS)
        if running:
            asyncio.get_running_loop().call_soon(advance)

    def schedule() -> None:
        if not running:
            advance()

    h.connect(schedule=schedule)
    async with loop_holds(clock) as holds:
        for number in (1, 2):
            h.create_topic(number=number, partitions=1_000)
            await until(lambda: not running)
            assert sum(partition.is_leader for partition in h.replicas) == 1_000
            h.delete_topic(number)
            # Requests are refused at once, however long the removal of the folders takes.
            assert not any(partition.is_leader for partition in h.replicas)
            await until(lambda: not running)
            assert list(h.replicas) == []
    assert holds.longest_ms < 2 * SLICE_MS + 1


async def test_stray_logs_are_renamed_at_startup() -> None:
    h = Harness()
    h.create_topic("kept", number=1)
    h.create_topic("gone", number=2)
    h.create_topic("renewed", number=3)
    image = h.metadata.image
    h.logs.get_or_create("unknown", 0, topic_id(9), h.settings.of("x").log)
    by_name = image.topics.by_name.delete("gone")
    by_name = by_name.set("renewed", by_name["renewed"]._replace(id=topic_id(4)))
    seen = image._replace(topics=image.topics._replace(by_name=by_name))
    assert sorted(h.replicas.set_strays_aside(seen)) == ["gone-0", "renewed-0", "unknown-0"]
    assert sum(name.endswith("-stray") for name in folders(h)) == 3
    assert "kept-0" in folders(h)


async def test_stray_logs_are_renamed_in_slices_before_new_logs_take_their_names() -> None:
    clock = ToilClock()
    h = Harness(clock=clock, files=ToilingFiles(clock))
    count = 500
    for index in range(count):
        h.logs.get_or_create("t", index, topic_id(9), h.settings.of("t").log)
    scheduled: list[str] = []
    h.connect(schedule=lambda: scheduled.append("again"))
    before_ms = clock.monotonic_ms()
    assert len(h.replicas.set_strays_aside(h.metadata.image)) == count
    h.create_topic("t", partitions=2)
    assert scheduled
    assert clock.monotonic_ms() - before_ms < SLICE_MS
    slices = 0
    while h.replicas.advance(SLICE_MS):
        assert clock.monotonic_ms() - before_ms < SLICE_MS + 1
        before_ms = clock.monotonic_ms()
        slices += 1
    assert slices > 3
    strays = [name for name in folders(h) if name.endswith("-stray")]
    assert len(strays) == count
    assert h.partition().log.log_end_offset == 0
    assert not any(name.endswith("-delete") for name in folders(h))


async def started_again(before: Harness) -> Harness:
    """Return the same broker restarted with its logs, without an image; its backlog is not
    processed."""
    await before.logs.close()
    h = Harness(files=before.files)
    h.connect(schedule=lambda: None)
    return h


async def test_log_is_renamed_as_stray_when_its_topic_is_deleted_before_its_replica_exists() -> (
    None
):
    """A broker that was away has caught up, and has not processed the topic yet."""
    before = Harness()
    before.create_topic(partitions=2)
    h = await started_again(before)
    h.create_topic(partitions=2)
    assert list(h.replicas) == []
    assert h.replicas.set_strays_aside(h.metadata.image) == []
    h.delete_topic()
    h.replicas.advance(SLICE_MS)
    assert [name.endswith("-stray") for name in folders(h)] == [True, True]
    assert h.logs.get("t", 0) is None


async def test_log_is_renamed_as_stray_when_its_replica_moves_before_it_exists() -> None:
    before = Harness()
    before.create_topic(replicas=[NODE, OTHER])
    h = await started_again(before)
    h.create_topic(replicas=[NODE, OTHER])
    h.change(replicas=[OTHER], isr=[OTHER], leader=OTHER)
    h.replicas.advance(SLICE_MS)
    assert [name.endswith("-stray") for name in folders(h)] == [True]


async def test_topic_recreated_before_its_replica_exists_has_a_new_log() -> None:
    before = Harness()
    before.create_topic()
    h = await started_again(before)
    h.create_topic()
    h.delete_topic()
    h.create_topic(number=2)
    h.replicas.advance(SLICE_MS)
    assert sorted(name.endswith("-stray") for name in folders(h)) == [False, True]
    assert h.partition().log.topic_id == topic_id(2)


async def test_an_illegal_topic_name_in_the_metadata_log_stops_the_node() -> None:
    h = Harness()
    with pytest.raises(InvariantViolated, match=r"\.\./x"):
        h.create_topic("../x")


async def test_leadership_listeners_are_notified_of_each_change() -> None:
    h = Harness()
    h.create_topic(partitions=2, replicas=[NODE, OTHER])
    listener = Listener()
    h.replicas.add_leadership_listener("t", listener)
    assert listener.heard == [("elected", 0, 0), ("elected", 1, 0)]
    listener.heard.clear()
    h.change(leader=OTHER)
    h.change(isr=[NODE])  # no new epoch, so no notification
    h.change(leader=NODE)
    h.change(index=1, leader=NODE)  # elected again in a new epoch, without a resignation in between
    h.delete_topic()
    assert listener.heard == [
        ("resigned", 0, 1),
        ("elected", 0, 2),
        ("elected", 1, 1),
        ("resigned", 0, None),
        ("resigned", 1, None),
    ]


# --- disk errors ----------------------------------------------------------------------------------


async def test_a_failed_write_takes_the_partition_offline_and_stops_the_node() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.produce(batch(b"a"))
    h.partition().log.guard.fail(OSError("disk"))
    result = h.produce(batch(b"b"))
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert h.partition().role is ReplicaRole.OFFLINE
    assert h.failures == ["log of t-0"]
    answered = (await waiting).responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert h.fetch(0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    # Metadata does not bring it back; deletion is still possible.
    h.change(isr=[NODE])
    assert h.partition().role is ReplicaRole.OFFLINE
    h.delete_topic()
    assert h.replicas.get("t", 0) is None


async def test_the_first_image_and_the_changes_after_it_give_the_same_partitions() -> None:
    h = Harness()
    h.create_topic("a", number=1, partitions=2)
    h.create_topic("b", number=2, replicas=[NODE, OTHER], leader=OTHER)
    h.change(number=1, index=1, leader=-1)
    whole = Harness()
    whole.metadata.image = h.metadata.image
    whole.settings.publish(MetadataDelta(EMPTY_IMAGE, h.metadata.image), h.metadata.image)
    whole.replicas.apply(MetadataDelta(EMPTY_IMAGE, h.metadata.image))

    def states(each: Harness) -> list[tuple[object, ...]]:
        return sorted(
            (p.topic, p.index, p.role.name, p.leader_id, p.leader_epoch, sorted(p.isr))
            for p in each.replicas
        )

    assert states(h) == states(whole)


async def test_a_broker_that_lost_its_registration_leads_and_follows_nothing_for_good() -> None:
    """P16: later images are about another process with its id."""
    h = Harness()
    h.create_topic("led", replicas=[NODE, OTHER], number=1)
    h.create_topic("followed", replicas=[NODE, OTHER], leader=OTHER, number=2)
    waiting = h.produce(batch(b"a"), topic="led")
    fetching = h.fetch(1, topic="led", max_wait_ms=1000)
    resigned: list[int | None] = []
    h.replicas.add_leadership_listener("led", _Resignations(resigned))
    h.connect(schedule=lambda: None)
    h.create_topic("late", number=3)
    h.replicas.lead_nothing()
    assert resigned == [None]
    answer = (await waiting).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = (await fetching).responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.change(number=1, leader=NODE, isr=[NODE])
    h.delete_topic(number=2)
    h.advance()
    for topic in ("led", "late"):
        assert h.produce(batch(b"b"), topic=topic).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert h.fetch(0, topic=topic).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert h.logs.get("followed", 0) is not None, "the logs stay as they are"
    assert not any(partition.is_readable for partition in h.replicas)


class _Resignations:
    def __init__(self, resigned: list[int | None]) -> None:
        self.resigned_epochs = resigned

    def elected(self, partition: int, leader_epoch: int) -> None:
        return

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        self.resigned_epochs.append(leader_epoch)


async def test_many_roles_change_in_slices_by_the_newest_image() -> None:
    c = Cluster(2)
    many = AT_ONCE_MAX + 5
    c[1].create_topic(partitions=many, replicas=[1, 2], leader=1)
    c[1].connect(schedule=lambda: None)
    c[1].replay(
        *(
            PartitionChangeRecord(topic_id=TOPIC, partition_id=index, leader=2)
            for index in range(many)
        )
    )
    assert sum(p.is_leader for p in c[1].replicas) == 5
    c[1].replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=many - 1, leader=1))
    c[1].advance()
    assert [p.index for p in c[1].replicas if p.is_leader] == [many - 1]
