"""The coordinator's driver: loading, changes of leadership, and appends that succeed, fail or time
out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.coordinators.coordinator_log import Appended
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.records import (
    CommittedOffset,
    EndTransactionRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    PersistedMember,
    TopicPartition,
    encode_record,
)
from broker.coordinators.partitioner import partition_for
from broker.coordinators.runtime.execution import DUE_PER_WAKE
from protocol.errors import ApiError, ErrorCode
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import GROUP, HOME, PARTITIONS, Driver
from testkit.memory.group_shard import A_ID
from testkit.memory.turns import until

WITHOUT_ID = OffsetRecord(
    GROUP, TopicPartition("a", 0), CommittedOffset(3, -1, "", 0, expire_timestamp_ms=2**62)
)


def commit_code(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    driver = await Driver().start()
    yield driver
    await driver.stop()


async def test_a_commit_on_one_broker_is_answered_inline(driver: Driver) -> None:
    assert commit_code(driver.commit(5)) is ErrorCode.NONE
    assert driver.fetch() == 5


async def test_a_commit_is_answered_when_its_record_is_committed(driver: Driver) -> None:
    driver.log.hold = True
    answer = driver.commit(5)
    await settle()
    assert not answer.done()
    assert driver.fetch() == -1
    driver.log.pending[0].set_result(None)
    assert commit_code(await answer) is ErrorCode.NONE
    assert driver.fetch() == 5


async def test_an_append_that_is_done_before_an_earlier_one_waits_for_it(driver: Driver) -> None:
    driver.log.hold = True
    first = driver.commit(1)
    driver.log.hold = False
    second = driver.commit(2)
    await settle()
    assert not second.done()
    driver.log.pending[0].set_result(None)
    assert commit_code(await first) is commit_code(await second) is ErrorCode.NONE
    assert driver.fetch() == 2


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_refused_append(driver: Driver, code: ErrorCode, told: ErrorCode) -> None:
    driver.commit(1)
    driver.log.refuse = code
    assert commit_code(driver.commit(2)) is told
    assert driver.fetch() == 1


async def test_a_refused_assignment_makes_members_join_again(driver: Driver) -> None:
    member_id = driver.join().member_id
    await driver.join(member_id)
    driver.log.refuse = ErrorCode.MESSAGE_TOO_LARGE
    synced = await driver.sync(member_id, 1)
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_repeated_deletion_waits_for_the_first(driver: Driver) -> None:
    """A reply may not rely on an uncommitted tombstone, which may still be lost."""
    driver.commit(1)
    for delete in (driver.delete_offset, driver.delete_group):
        driver.log.hold = True
        first, second = delete(), delete()
        await settle()
        assert not first.done()
        assert not second.done()
        driver.log.pending[-1].set_result(None)
        await first
        await second
        driver.log.hold = False
        driver.commit(2)
    driver.log.hold = True
    first, second = driver.delete_offset(), driver.delete_offset()
    lost = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    driver.log.pending[-1].set_exception(lost)
    assert [(await each).error_code for each in (first, second)] == [ErrorCode.NOT_COORDINATOR] * 2


async def test_a_lost_append_reloads_the_groups(driver: Driver) -> None:
    driver.commit(1)
    driver.log.hold = True
    answers = [driver.commit(2), driver.commit(3)]
    driver.log.hold = False
    # The second record is in the log whatever happened to the first: the outcome is unknown.
    driver.log.pending[0].set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None))
    for answer in answers:
        assert commit_code(await answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await settle()
    assert driver.fetch() == 3
    driver.log.pending[1].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    await settle()
    assert driver.fetch() == 3


async def test_a_lost_append_without_leadership_ends_the_coordinator(driver: Driver) -> None:
    driver.log.hold = True
    answer = driver.commit(2)
    driver.log.epochs.clear()
    driver.log.pending[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    assert commit_code(await answer) is ErrorCode.NOT_COORDINATOR
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR


async def test_an_append_lost_at_once(driver: Driver) -> None:
    def lost(*_: Any) -> Appended:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
        return Appended(0, future)

    driver.log.append = lost  # type: ignore[method-assign]
    assert commit_code(driver.commit(1)) is ErrorCode.NOT_COORDINATOR
    await settle()
    assert driver.fetch() == -1


async def test_a_commit_that_takes_too_long() -> None:
    driver = await Driver(offsets_commit_timeout_ms=1).start()
    driver.log.hold = True
    answer = driver.commit(7)
    driver.clock.advance(1)
    assert commit_code(await answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.fetch() == -1
    # The offset is in the log, and is visible once it is committed.
    driver.log.pending[0].set_result(None)
    await settle()
    assert driver.fetch() == 7
    await driver.stop()


async def test_an_assignment_that_takes_too_long() -> None:
    driver = await Driver(offsets_commit_timeout_ms=1).start()
    member_id = driver.join().member_id
    await driver.join(member_id)
    driver.log.hold = True
    waiting = driver.sync(member_id, 1)
    driver.clock.advance(1)
    assert (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.log.pending[0].set_result(None)
    await settle()
    assert driver.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    await driver.stop()


async def test_loading() -> None:
    driver = Driver()
    at = TopicPartition("a", 0)
    driver.log.records[HOME] = [
        encode_record(OffsetRecord(GROUP, at, CommittedOffset(offset, -1, "", 0)))
        for offset in range(450)
    ]
    driver.log.gate = asyncio.Event()
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR
    await driver.start()
    assert driver.coordinator.view(GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.commit(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.join() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.heartbeat("m", 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.coordinator.shards() == ([], True)
    driver.delete_topics("b")
    driver.log.gate.set()
    await settle()
    await settle()
    assert driver.fetch() == 449
    await driver.stop()


async def test_a_topic_that_is_deleted_while_loading() -> None:
    driver = Driver()
    at = TopicPartition("a", 0)
    driver.log.records[HOME] = [
        encode_record(OffsetRecord(GROUP, at, CommittedOffset(3, -1, "", 0, topic_id=A_ID)))
    ]
    driver.log.gate = asyncio.Event()
    await driver.start()
    driver.delete_topics("a")
    driver.topics.topics["a"] = b"N" * 16, 4
    driver.log.gate.set()
    await until(lambda: len(driver.log.records[HOME]) == 2)
    assert driver.fetch() == -1
    await driver.stop()


async def test_deletions_seen_while_loading_survive_a_newer_epoch() -> None:
    """Offsets without a topic id: only the deletion reveals that they are old."""
    driver = Driver()
    driver.log.records[HOME] = [encode_record(WITHOUT_ID)]
    driver.log.gate = asyncio.Event()
    await driver.start()
    driver.delete_topics("a")
    driver.topics.topics["a"] = b"N" * 16, 4
    driver.coordinator.runtime.elected(HOME, 2)
    driver.log.gate.set()
    await until(lambda: len(driver.log.records[HOME]) == 2)
    assert driver.fetch() == -1
    await driver.stop()


async def test_deletions_survive_a_lost_append() -> None:
    driver = Driver()
    driver.log.records[HOME] = [encode_record(WITHOUT_ID)]
    await driver.start()
    await until(lambda: not driver.coordinator.stale_offsets.is_searching(HOME))
    driver.log.hold = True
    neighbour = next(f"g{n}" for n in range(99) if partition_for(f"g{n}", PARTITIONS) == HOME)
    answer = driver.commit(1, group=neighbour)
    driver.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.delete_topics("a")
    driver.topics.topics["a"] = b"N" * 16, 4
    await settle()
    driver.log.refuse, driver.log.hold = None, False
    driver.log.pending[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    await answer
    await until(lambda: len(driver.log.records[HOME]) == 4)
    assert driver.fetch() == -1
    await driver.stop()


async def test_refused_tombstones_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordinators.stale_offsets.LOAD_PAUSE_S", 0.0)
    driver = await Driver().start()
    driver.commit(3)
    driver.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.delete_topics("a")
    await settle()
    assert driver.fetch() == -1
    assert len(driver.log.records[HOME]) == 1
    driver.log.refuse = None
    await until(lambda: not driver.coordinator.stale_offsets.is_searching(HOME))
    assert driver.log.records[HOME][1][1] is None
    (shard,), _ = driver.coordinator.shards()
    assert shard.deletions.entries == []
    await driver.stop()


async def test_offsets_of_topics_deleted_under_the_coordinator_before_are_deleted() -> None:
    """G9: the coordinator before failed ahead of the tombstones; a topic of that name exists
    again."""
    driver = Driver()
    at = TopicPartition("a", 0)
    old = CommittedOffset(3, -1, "", 0, topic_id=b"O" * 16)
    driver.log.records[HOME] = [encode_record(OffsetRecord(GROUP, at, old))]
    await driver.start()
    await until(lambda: len(driver.log.records[HOME]) == 2)
    assert driver.log.records[HOME][1][1] is None
    assert driver.fetch() == -1
    await driver.stop()


@pytest.mark.parametrize("key", [b"\x00", b"\x00\x01broken"])
async def test_records_that_cannot_be_read_end_the_loading(key: bytes) -> None:
    driver = Driver()
    driver.log.records[HOME] = [(key, b"")]
    await driver.start()
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR
    await driver.stop()


async def test_load_after_disk_error_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 4972: the group had no coordinator until another broker led."""
    monkeypatch.setattr("broker.coordinators.runtime.runtime.LOAD_PAUSE_S", 0.0)
    driver = Driver()
    at = TopicPartition("a", 0)
    driver.log.records[HOME] = [
        encode_record(OffsetRecord(GROUP, at, CommittedOffset(3, -1, "", 0, topic_id=A_ID)))
    ]
    driver.log.broken_read = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error")
    await driver.start()
    assert driver.coordinator.view(GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    driver.log.broken_read = None
    await settle()
    assert driver.fetch() == 3
    await driver.stop()


async def test_load_after_lost_leadership_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.coordinators.runtime.runtime.LOAD_PAUSE_S", 0.0)
    driver = Driver()
    driver.log.broken_read = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error")
    await driver.start()
    driver.coordinator.runtime.resigned(HOME, 2)
    driver.log.broken_read = None
    await settle()
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR
    await driver.stop()


async def test_a_group_that_cannot_be_ends_the_loading() -> None:
    driver = Driver()
    member = PersistedMember("m", None, "c", "/h", 0, 10_000, b"", b"")
    twice = GroupMetadata("consumer", 1, "range", "m", 0, (member, member))
    driver.log.records[HOME] = [encode_record(GroupRecord(GROUP, twice))]
    await driver.start()
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR
    assert driver.supervisor.failure is None
    await driver.stop()


async def test_a_newer_epoch_while_loading_loads_again() -> None:
    driver = Driver()
    driver.log.gate = asyncio.Event()
    driver.log.broken_read = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    await driver.start()
    driver.coordinator.runtime.elected(HOME, 2)
    driver.log.gate.set()
    driver.log.broken_read = None
    await settle()
    assert driver.fetch() == -1
    await driver.stop()


async def test_a_newer_epoch_of_a_leader_keeps_its_groups(driver: Driver) -> None:
    member_id = await driver.member()
    driver.coordinator.runtime.elected(HOME, 2)
    driver.coordinator.runtime.resigned(HOME, 1)
    assert driver.heartbeat(member_id, 1) is ErrorCode.NONE


async def test_commit_in_progress_fails_when_coordinator_moves(driver: Driver) -> None:
    driver.log.hold = True
    answer = driver.commit(4)
    driver.coordinator.runtime.resigned(HOME, 2)
    assert commit_code(await answer) is ErrorCode.NOT_COORDINATOR
    driver.log.pending[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    await settle()


async def test_waiting_join_fails_when_coordinator_moves(driver: Driver) -> None:
    member_id = await driver.member()
    waiting = driver.join()
    assert waiting.error_code == ErrorCode.MEMBER_ID_REQUIRED
    waiting = driver.join(waiting.member_id)
    driver.coordinator.runtime.resigned(HOME, 2)
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert driver.heartbeat(member_id, 1) is ErrorCode.NOT_COORDINATOR
    # The next leader knows the group by its record.
    driver.coordinator.runtime.elected(HOME, 3)
    await settle()
    assert driver.heartbeat(member_id, 1) is ErrorCode.NONE


async def test_resigning_while_loading(driver: Driver) -> None:
    other = (HOME + 1) % PARTITIONS
    driver.log.gate = asyncio.Event()
    driver.coordinator.runtime.elected(other, 1)
    await settle()
    driver.coordinator.runtime.resigned(other, None)
    driver.log.gate.set()
    await settle()
    assert len(driver.coordinator.shards()[0]) == 1


async def test_sessions_end_on_the_loops_time() -> None:
    driver = await Driver(min_session_timeout_ms=0).start()
    member_id = await driver.member()
    handles = driver.coordinator.runtime.slots[HOME]
    assert handles.wake is not None
    driver.clock.advance(10_000)
    handles.wake.cancel()
    driver.coordinator.runtime.executor.on_wake(handles)
    assert driver.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    await driver.stop()


async def test_due_timers_are_served_in_portions() -> None:
    driver = await Driver(min_session_timeout_ms=0, offsets_commit_timeout_ms=10_000).start()
    slot = driver.coordinator.runtime.slots[HOME]
    for _ in range(3 * DUE_PER_WAKE):
        assert driver.join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    driver.log.hold = True
    answers = [driver.commit(number) for number in range(2 * DUE_PER_WAKE)]
    shard = slot.loaded()
    driver.clock.advance(10_000)
    for portion in (1, 2, 3):
        assert slot.wake is not None
        slot.wake.cancel()
        driver.coordinator.runtime.executor.on_wake(slot)
        assert len(shard.core.timers) == (3 - portion) * DUE_PER_WAKE
        assert sum(answer.done() for answer in answers) == min(portion, 2) * DUE_PER_WAKE
    assert slot.next_timeout() is None
    for pending in driver.log.pending:
        pending.set_result(None)
    await settle()
    assert (driver.fetch(), len(slot.in_flight)) == (2 * DUE_PER_WAKE - 1, 0)
    await driver.stop()


async def test_a_record_that_cannot_be_written_is_refused() -> None:
    driver = await Driver(offset_metadata_max_bytes=2**31 - 1).start()
    assert commit_code(driver.commit(1, "x" * 32_768)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.fetch() == -1
    assert commit_code(driver.commit(2)) is ErrorCode.NONE
    await driver.stop()


async def test_offsets_expire_in_the_background() -> None:
    driver = await Driver(offsets_retention_ms=1_000).start()
    driver.commit(5)
    driver.clock.advance(1_000)
    await driver.coordinator.expire_offsets()
    assert driver.fetch() == -1
    await driver.stop()


async def test_transaction_of_a_decision_survives_a_failover(driver: Driver) -> None:
    """T9, G10: the next coordinator reads what this one has appended for a producer."""
    at, value = TopicPartition("a", 0), CommittedOffset(9, -1, "", 0, topic_id=A_ID)
    executor = driver.coordinator.runtime.executor
    slot = driver.coordinator.runtime.slots[HOME]
    driver.commit(3)
    executor.carry_out(slot, Decision(records=[PendingOffsetRecord(GROUP, at, value, 7, 2)]))
    before = slot.loaded().appended
    assert before.pending_of(GROUP)[at][7].log_offset == 1
    driver.coordinator.runtime.resigned(HOME, 2)
    driver.coordinator.runtime.elected(HOME, 3)
    await settle()
    slot = driver.coordinator.runtime.slots[HOME]
    assert slot.loaded().appended == before
    executor.carry_out(slot, Decision(records=[EndTransactionRecord(7, 2, True, 5)]))
    assert driver.fetch() == 9


async def test_no_topic_no_coordinator(driver: Driver) -> None:
    driver.log.count = None
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR


async def test_metrics(driver: Driver) -> None:
    await driver.member()
    families = [family for family in driver.coordinator.collect() if family is not None]
    values = {family.name: next(iter(family.samples))[1] for family in families}
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    assert values[f"{prefix}groups"] == 1
    assert values[f"{prefix}groupsstable"] == 1
    assert values[f"{prefix}groupspreparingrebalance"] == 0
    assert values[f"{prefix}offsets"] == 0
    assert values["kafka_server_group_coordinator_metrics_group_completed_rebalance_count"] == 1


async def test_after_close_nothing_is_taken_up(driver: Driver) -> None:
    driver.coordinator.close()
    driver.coordinator.runtime.elected(HOME, 9)
    assert driver.coordinator.view(GROUP) is ErrorCode.NOT_COORDINATOR
