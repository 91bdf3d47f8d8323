"""Offsets of transactions in logs of Apache Kafka: pending, committed, aborted (T9, G10)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinators.group.decision import Decision
from broker.coordinators.group.records import (
    CommittedOffset,
    EndTransactionRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    ParsedRecord,
    PendingOffsetRecord,
    ReplayedRecord,
    TopicPartition,
    encode_batch,
    encode_record,
)
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.group.transactions import NO_TRANSACTIONS
from broker.coordinators.log_entries import EndOfTransaction, LogRecord
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from testkit.memory.group_shard import A_ID, GROUP, WALL_EPOCH_MS, ShardWorld

AT = TopicPartition("a", 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
P, Q = 7, 8
EPOCH = 3
COMMIT, ABORT = True, False


def offset(value: int, at: TopicPartition = AT, group: str = GROUP) -> OffsetRecord:
    return OffsetRecord(group, at, CommittedOffset(value, -1, "", WALL_EPOCH_MS, topic_id=A_ID))


def pending(producer_id: int) -> PendingOffsetRecord:
    sent = offset(1)
    assert sent.value is not None
    return PendingOffsetRecord(*sent[:2], sent.value, producer_id, EPOCH)


END = EndTransactionRecord(P, EPOCH, committed=True, coordinator_epoch=0)
DELETED = OffsetRecord(GROUP, AT, None)
EMPTY_GROUP = GroupRecord(GROUP, GroupMetadata("consumer", 1, None, None, WALL_EPOCH_MS))


class LoadedWorld(ShardWorld):
    """A loaded group. A step is a record, a producer and its record, or a producer and its
    outcome."""

    def __init__(self, *steps: ParsedRecord | tuple[int, ParsedRecord | bool]) -> None:
        super().__init__()
        self.shard = GroupShard(self.config, self._new_uuid, self.topics)
        for at, step in enumerate(steps):
            if isinstance(step, (OffsetRecord, GroupRecord)):
                self.shard.replay(LogRecord(at, *encode_record(step)))
            elif isinstance(step[1], bool):
                self.shard.replay(EndOfTransaction(at, step[0], EPOCH, step[1], 0))
            else:
                record: Any = step[1]
                self.shard.replay(LogRecord(at, *encode_record(record), step[0], EPOCH))
        self.revive()

    def check(self) -> None:
        self.shard.validate()

    def stable(self, at: TopicPartition = AT) -> int | ErrorCode:
        """Return the committed offset or the error that a client with require_stable gets."""
        asked = [(at.topic, bytes(16), [at.partition])]
        (topic,) = self.shard.fetch_offsets(GROUP, asked, require_stable=True)
        (found,) = topic.partitions
        assert found.error_code is ErrorCode.NONE or found[1:4] == (-1, -1, "")
        return found.error_code or found.offset


@pytest.mark.parametrize(
    ("steps", "any_", "stable"),
    [
        ([offset(3), (P, offset(9)), (P, ABORT)], 3, 3),
        ([offset(3), (P, offset(9)), (P, COMMIT)], 9, 9),
        ([offset(3), (P, offset(9))], 3, UNSTABLE),
        ([(P, offset(9))], -1, UNSTABLE),
        ([(P, offset(9)), (P, ABORT)], -1, -1),
        ([(P, offset(9)), (P, COMMIT)], 9, 9),
        # Of several offsets in one transaction the last counts, and only that transaction ends.
        ([(P, offset(4)), (P, offset(6)), (P, COMMIT), (P, offset(8)), (P, ABORT)], 6, 6),
        ([(P, offset(4)), (P, COMMIT), (P, offset(8))], 4, UNSTABLE),
        ([offset(3), (Q, COMMIT), (Q, ABORT)], 3, 3),
        # The order is that of the records, not of the markers.
        ([(P, offset(9)), offset(5), (P, COMMIT)], 5, 5),
        ([(P, offset(9)), offset(5)], 5, UNSTABLE),
        ([(P, offset(9)), offset(5), (P, offset(7)), (P, COMMIT)], 7, 7),
        ([(P, offset(7)), (Q, offset(8)), (Q, COMMIT), (P, COMMIT)], 8, 8),
        ([(P, offset(7)), (Q, offset(8)), (P, COMMIT), (Q, COMMIT)], 8, 8),
        ([(P, offset(7)), (Q, offset(8)), (Q, ABORT), (P, COMMIT)], 7, 7),
        ([(P, offset(7)), (Q, offset(8)), (Q, COMMIT)], 8, UNSTABLE),
        # A tombstone removes pending offsets, too.
        ([offset(3), (P, offset(9)), DELETED, (P, COMMIT)], -1, -1),
        ([(P, offset(9)), DELETED], -1, -1),
        ([(P, offset(9)), DELETED, (P, offset(2)), (P, COMMIT)], 2, 2),
    ],
)
def test_committed_and_stable_offset_after_transaction_steps(
    steps: list[Any], any_: int, stable: int | ErrorCode
) -> None:
    world = LoadedWorld(*steps)
    assert (world.fetch(*AT), world.stable()) == (any_, stable)


def test_all_offsets_of_a_group() -> None:
    other, pending = TopicPartition("a", 1), TopicPartition("b", 0)
    world = LoadedWorld(offset(3), offset(4, other), (P, offset(9)), (P, offset(1, pending)))
    for require_stable, expected in ((False, [3, 4]), (True, [-1, 4])):
        (topic,) = world.shard.fetch_offsets(GROUP, None, require_stable=require_stable)
        assert [each.offset for each in topic.partitions] == expected


def test_nothing_is_left_of_transactions_that_ended() -> None:
    others = [offset(n, group=f"g{n}") for n in range(3)]
    steps = [(P, each) for each in (*others, offset(9))]
    for commits in (COMMIT, ABORT):
        world = LoadedWorld(*steps, (P, commits))
        assert world.shard.appended.transactions == NO_TRANSACTIONS
    assert LoadedWorld((P, offset(1)), DELETED, (P, COMMIT)).shard.appended.transactions == (
        NO_TRANSACTIONS
    )


def test_the_end_of_a_transaction_is_nothing_to_another_one_of_the_group() -> None:
    other = TopicPartition("a", 1)
    world = LoadedWorld((P, offset(9)), (Q, offset(4, other)), (P, COMMIT))
    assert (world.stable(), world.stable(other)) == (9, UNSTABLE)


def test_a_commit_after_loading_overtakes_what_is_pending() -> None:
    world = LoadedWorld((P, offset(9)))
    world.commit({("a", 0): 5})
    assert (world.fetch(*AT), world.stable()) == (5, UNSTABLE)
    world.shard.replay(EndOfTransaction(1, P, EPOCH, committed=True, coordinator_epoch=0))
    world.shard.core.committed = world.shard.appended
    assert (world.fetch(*AT), world.stable()) == (5, 5)


def test_deleting_a_group_or_its_offsets_forgets_what_is_pending() -> None:
    world = LoadedWorld((P, offset(9)))
    assert world.delete_group() is ErrorCode.NONE
    assert world.stable() == -1
    assert world.delete_group() is ErrorCode.GROUP_ID_NOT_FOUND
    world = LoadedWorld((P, offset(9)))
    world.delete_offsets([("a", 0)])
    assert world.stable() == -1


def test_a_group_that_has_nothing_but_pending_offsets_exists() -> None:
    world = LoadedWorld((P, offset(9)))
    (listed,) = world.shard.list_groups(frozenset(), frozenset())
    assert (listed.group_id, listed.group_state) == (GROUP, "Empty")
    assert world.shard.describe_group(GROUP, 6).group_state == "Empty"


def test_the_topic_goes_with_what_is_pending() -> None:
    world = LoadedWorld(offset(3), (P, offset(9)), (P, offset(4, TopicPartition("a", 1))))
    world.delete_topics("a")
    world.forget()
    assert world.shard.appended.transactions.offsets == NO_TRANSACTIONS.offsets
    assert world.shard.core.counters.offset_deletions == 2


def test_pending_offset_does_not_expire() -> None:
    world = LoadedWorld(EMPTY_GROUP, offset(3), (P, offset(9)))
    world.now_ms += world.config.offsets_retention_ms
    world.expire()
    assert (world.fetch(*AT), world.stable()) == (3, UNSTABLE)
    assert GROUP in world.shard.appended.groups
    world = LoadedWorld(EMPTY_GROUP, (P, offset(9)))
    world.now_ms += world.config.offsets_retention_ms
    world.expire()
    assert GROUP in world.shard.appended.groups


def test_a_new_coordinator_has_the_same_state() -> None:
    """G10: repeated replays of a log produce the same state."""
    steps = [offset(3), (P, offset(9)), (Q, offset(4)), (Q, COMMIT)]
    assert LoadedWorld(*steps).shard.appended == LoadedWorld(*steps).shard.appended


class DecidingWorld(ShardWorld):
    """A group whose transactions are decided here; `check` compares with the replay of the log."""

    def send(self, producer_id: int, *records: OffsetRecord) -> None:
        pending: list[ReplayedRecord] = []
        for record in records:
            assert record.value is not None
            pending.append(PendingOffsetRecord(*record[:2], record.value, producer_id, EPOCH))
        self.run(Decision(records=pending))

    def end(self, producer_id: int, *, committed: bool) -> None:
        self.run(Decision(records=[EndTransactionRecord(producer_id, EPOCH, committed, 0)]))


@pytest.mark.parametrize(("committed", "expected"), [(True, (9, 4)), (False, (3, -1))])
def test_decided_transaction_has_the_state_of_its_replay(
    committed: bool, expected: tuple[int, int]
) -> None:
    """G10, T9: pending offsets and their end are records of a decision like any other."""
    other = TopicPartition("a", 1)
    world = DecidingWorld()
    world.commit({("a", 0): 3})
    world.send(P, offset(9), offset(4, other))
    assert world.fetch(*AT) == 3
    assert world.shard.appended.transactions != NO_TRANSACTIONS
    world.end(P, committed=committed)
    assert (world.fetch(*AT), world.fetch(*other)) == expected
    assert world.shard.appended.transactions == NO_TRANSACTIONS


def test_decided_transaction_is_overtaken_by_a_later_one() -> None:
    """The order is that of the records: `apply` gives pending offsets their offsets in the log."""
    world = DecidingWorld()
    world.send(P, offset(7))
    world.send(Q, offset(8))
    world.end(Q, committed=True)
    world.end(P, committed=True)
    assert world.fetch(*AT) == 8


@pytest.mark.parametrize(
    "records",
    [
        [pending(P), pending(Q)],
        [pending(P), offset(1)],
        [offset(1), pending(P)],
        [offset(1), END],
        [END, END],
    ],
)
def test_records_of_several_batches_are_not_encoded(records: list[ReplayedRecord]) -> None:
    with pytest.raises(InvariantViolated):
        encode_batch(records)
