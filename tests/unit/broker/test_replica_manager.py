"""Partitions come, change and go with the image; disk errors stop the node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.coordinators.coordinator_log import EndOfTransaction, LogRecord
from broker.coordinators.replicated_log import ReplicatedCoordinatorLog
from broker.replication.partition import Partition
from broker.replication.remote_replica import RemoteReplica
from broker.replication.replica_role import TRANSITIONS, ReplicaRole
from metalog.image.delta import MetadataDelta
from metalog.image.values import EMPTY_IMAGE
from protocol.batch.control import build_end_txn_marker
from protocol.batch.records import NO_PRODUCER, Producer, Record, build_batch, records_payload
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from runtime.errors import InvariantViolated
from runtime.slices import SLICE_MS
from testkit.loop_holds import ToilClock, ToilingFiles, loop_holds
from testkit.memory.broker import LOG_DIR, NODE, OTHER, Harness, batch, settle, topic_id
from testkit.memory.sockets import until


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


async def test_a_topic_made_again_begins_empty_whatever_the_order() -> None:
    h = Harness()
    h.create_topic()
    h.produce(batch(b"old"))
    before = h.metadata.image
    from protocol.metadata.remove_topic_record import RemoveTopicRecord

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
    h.replicas.on_backlog(lambda: scheduled.append("again"))
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

    h.replicas.on_backlog(schedule)
    async with loop_holds(clock) as holds:
        for number in (1, 2):
            h.create_topic(number=number, partitions=1_000)
            await until(lambda: not running)
            assert sum(partition.is_leader for partition in h.replicas) == 1_000
            h.delete_topic(number)
            # Whoever asks is refused at once, however long the folders take.
            assert not any(partition.is_leader for partition in h.replicas)
            await until(lambda: not running)
            assert list(h.replicas) == []
    assert holds.longest_ms < 2 * SLICE_MS + 1


async def test_strays_are_set_aside_at_the_start() -> None:
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


async def test_strays_are_set_aside_in_slices_before_logs_of_their_names_are_made() -> None:
    clock = ToilClock()
    h = Harness(clock=clock, files=ToilingFiles(clock))
    count = 500
    for index in range(count):
        h.logs.get_or_create("t", index, topic_id(9), h.settings.of("t").log)
    scheduled: list[str] = []
    h.replicas.on_backlog(lambda: scheduled.append("again"))
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


async def test_an_illegal_topic_name_in_the_metadata_log_stops_the_node() -> None:
    h = Harness()
    with pytest.raises(InvariantViolated, match=r"\.\./x"):
        h.create_topic("../x")


async def test_leadership_is_told_to_listeners() -> None:
    h = Harness()
    h.create_topic(partitions=2, replicas=[NODE, OTHER])
    listener = Listener()
    h.replicas.add_leadership_listener("t", listener)
    assert listener.heard == [("elected", 0, 0), ("elected", 1, 0)]
    listener.heard.clear()
    h.change(leader=OTHER)
    h.change(isr=[NODE])  # no new epoch: nothing to tell
    h.change(leader=NODE)
    h.change(index=1, leader=NODE)  # the same leader in a new epoch is elected anew
    h.delete_topic()
    assert listener.heard == [
        ("resigned", 0, 1),
        ("elected", 0, 2),
        ("resigned", 1, 1),
        ("elected", 1, 1),
        ("resigned", 0, None),
        ("resigned", 1, None),
    ]


# --- disk errors ----------------------------------------------------------------------------------


async def test_a_failed_write_takes_the_partition_offline_and_stops_the_node() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = h.produce(batch(b"a"))
    h.partition().log.fail(OSError("disk"))
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


# --- the partition's own rules --------------------------------------------------------------------


async def test_epochs_never_go_back() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    partition = h.partition()
    with pytest.raises(InvariantViolated, match="epochs went back"):
        partition.become_follower(
            leader_id=OTHER, leader_epoch=-1, partition_epoch=5, replicas=(NODE,), isr=(NODE,)
        )


async def test_every_other_role_change_is_refused() -> None:
    h = Harness()
    h.create_topic()
    for before in ReplicaRole:
        for after in ReplicaRole:
            partition = Partition("t", topic_id(1), 0, node_id=NODE, log=h.partition().log)
            partition.role = before
            if (before, after) in TRANSITIONS:
                partition._enter(after)
            else:
                with pytest.raises(InvariantViolated):
                    partition._enter(after)


async def test_a_new_leader_forgets_what_followers_told_the_old_one() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    partition = h.partition()
    partition.follower_fetched(OTHER, offset=0, log_start=0, broker_epoch=1, now_ms=0)
    assert partition.remote[OTHER].log_end == 0
    h.change(leader=OTHER)
    assert partition.remote == {}
    h.change(leader=NODE)
    assert partition.remote[OTHER].log_end == -1
    partition.validate()


async def test_an_older_broker_epoch_moves_nothing() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    partition = h.partition()
    partition.follower_fetched(OTHER, offset=0, log_start=0, broker_epoch=7, now_ms=0)
    h.produce(batch(b"a"), acks=1)
    moved = partition.follower_fetched(OTHER, offset=1, log_start=0, broker_epoch=6, now_ms=0)
    assert not moved
    assert partition.log.high_watermark == 0


def test_caught_up_is_a_time_not_a_distance() -> None:
    # KIP-16: always one fetch behind under steady appends is in sync as of the fetch before.
    remote = RemoteReplica()
    end = 0
    for step in range(1, 10):
        now_ms = step * 100.0
        remote.fetched(end, 0, 1, end + 5, now_ms)
        end += 5
        if step > 1:
            assert remote.caught_up_ms == now_ms - 100.0
    stuck = remote.caught_up_ms
    remote.fetched(end - 5, 0, 1, end + 50, 2000.0)
    assert remote.caught_up_ms == stuck
    remote.fetched(end + 50, 0, 1, end + 50, 2100.0)
    assert remote.caught_up_ms == 2100.0


async def test_min_isr_states() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], configs={"min.insync.replicas": "2"})
    partition = h.partition()
    assert (partition.at_min_isr, partition.under_min_isr, partition.under_replicated) == (
        True,
        False,
        False,
    )
    h.change(isr=[NODE])
    assert (partition.at_min_isr, partition.under_min_isr, partition.under_replicated) == (
        False,
        True,
        True,
    )
    h.produce(batch(b"a"), acks=1)
    assert partition.log.high_watermark == 0
    h.set_config("t", "min.insync.replicas", "1")
    assert partition.log.high_watermark == 1


# --- the coordinator's log ------------------------------------------------------------------------


def coordinator_log(h: Harness) -> ReplicatedCoordinatorLog:
    return ReplicatedCoordinatorLog(
        "t",
        replicas=h.replicas,
        metadata=h.metadata,
        creator=h.creator,
    )


async def test_coordinator_records_are_committed_and_read_back() -> None:
    h = Harness()
    log = coordinator_log(h)
    assert log.partition_count() is None
    h.create_topic(partitions=2, configs={"cleanup.policy": "compact"})
    assert (log.partition_count(), log.leader_epoch(0), log.leader_epoch(9)) == (2, 0, None)
    first = log.append(0, [(b"a", b"1"), (b"b", None)], 5)
    second = log.append(0, [(b"c", b"3")], 6)
    assert first.done()
    assert second.done()
    assert [row[:3] async for row in log.read_all(0)] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"c", b"3"),
    ]
    assert [row async for row in log.read_all(1)] == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_coordinator_is_told_of_transactions(codec: Codec) -> None:
    """T9: the batch says whose transaction a record belongs to, a marker how it ended."""
    h = Harness()
    h.create_topic(configs={"cleanup.policy": "compact"})
    log = coordinator_log(h)
    unpacked = []
    run_in_worker = h.files.run

    async def run(function: Any, *args: Any) -> Any:
        unpacked.append(function)
        return await run_in_worker(function, *args)

    h.files.run = run  # type: ignore[method-assign]

    def append(data: bytes) -> None:
        h.replicas.append_own(h.partition(), data, now_ms=5)

    def records(*keys: bytes, producer: Producer = NO_PRODUCER) -> bytes:
        listed = [Record(timestamp=5, key=key, value=b"v") for key in keys]
        return build_batch(listed, producer=producer, compression=codec)

    append(records(b"a"))
    append(records(b"b", b"c", producer=Producer(7, 1, -1, transactional=True)))
    append(records(b"d", producer=Producer(8, 1, 0, transactional=False)))
    for commit in (False, True):
        marker = build_end_txn_marker(7, 1, commit=commit, coordinator_epoch=0, timestamp_ms=5)
        append(marker)
    assert [row async for row in log.read_all(0)] == [
        LogRecord(0, b"a", b"v"),
        LogRecord(1, b"b", b"v", 7),
        LogRecord(2, b"c", b"v", 7),
        LogRecord(3, b"d", b"v"),
        EndOfTransaction(4, 7, False),
        EndOfTransaction(5, 7, True),
    ]
    assert unpacked == ([] if codec is Codec.NONE else [records_payload] * 3)


async def test_coordinator_appends_wait_for_the_isr_and_fail_with_leadership() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    log = coordinator_log(h)
    first = log.append(0, [(b"a", b"1")], 5)
    second = log.append(0, [(b"b", b"1")], 5)
    h.partition().follower_fetched(OTHER, offset=1, log_start=0, broker_epoch=1, now_ms=0)
    assert first.done()
    assert not second.done()
    h.change(leader=OTHER)
    with pytest.raises(ApiError) as caught:
        await second
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.leader_epoch(0) is None
    with pytest.raises(ApiError) as refused:
        log.append(0, [(b"a", b"1")], 5)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_coordinator_appends_that_are_refused() -> None:
    h = Harness()
    h.create_topic(configs={"max.message.bytes": "100"})
    log = coordinator_log(h)
    with pytest.raises(ApiError) as caught:
        log.append(0, [(b"a", b"x" * 200)], 5)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_reading_for_a_coordinator_ends_with_its_leadership() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], isr=[NODE])
    log = coordinator_log(h)
    for _ in range(3):
        log.append(0, [(b"k", b"v" * 200_000)], 5)
    rows = log.read_all(0)
    assert (await anext(rows))[0] == 0
    h.change(leader=OTHER)
    with pytest.raises(ApiError):
        async for _ in rows:
            pass


async def test_a_flush_holds_a_coordinators_commit_back() -> None:
    h = Harness()
    h.create_topic(configs={"flush.messages": "1"})
    log = coordinator_log(h)
    committed = log.append(0, [(b"a", b"1")], 5)
    assert not committed.done()
    await committed
    assert h.partition().log.recovery_point == 1
    await settle()


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
    """P16: later images speak of another process with its id."""
    h = Harness()
    h.create_topic("led", replicas=[NODE, OTHER], number=1)
    h.create_topic("followed", replicas=[NODE, OTHER], leader=OTHER, number=2)
    waiting = h.produce(batch(b"a"), topic="led")
    fetching = h.fetch(1, topic="led", max_wait_ms=1000)
    resigned: list[int | None] = []
    h.replicas.add_leadership_listener("led", _Resignations(resigned))
    h.replicas.on_backlog(lambda: None)
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
