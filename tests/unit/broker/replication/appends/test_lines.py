"""Lines of waiting batches: order, memory, deadlines."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.replication.appends import lines
from broker.replication.appends.lines import NEVER_MS, HeldBatch, HeldLines, LineKey, Reason
from broker.replication.partition.partition import Partition
from protocol.batch.header import NO_PRODUCER_ID, parse_header
from protocol.batch.records import Producer
from protocol.batch.validate import ValidBatch
from testkit.memory.broker import batch

P: Any = "a partition"
Q: Any = "another partition"


def held(
    reason: Reason = Reason.WALK,
    until_ms: float = NEVER_MS,
    *,
    partition: Partition = P,
    producer_id: int = 5,
    sequence: int = 0,
) -> HeldBatch:
    records = batch(b"v", producer=Producer(producer_id, 0, sequence))
    return HeldBatch(
        partition,
        records,
        parse_header(records),
        api_version=12,
        required_acks=-1,
        transactional=False,
        reason=reason,
        until_ms=until_ms,
        done=cast(Any, None),
    )


def key(partition: Partition = P, producer_id: int = 5) -> LineKey:
    return partition, producer_id


def lines_of(*batches: HeldBatch) -> HeldLines:
    found = HeldLines()
    for one in batches:
        found.add(one)
    return found


def test_batch_too_short_for_a_header_shares_the_line_without_producer_id() -> None:
    short = HeldBatch(
        P,
        b"short",
        None,
        api_version=12,
        required_acks=-1,
        transactional=False,
        reason=Reason.IMAGE,
        until_ms=1.0,
        done=cast(Any, None),
    )
    assert short.key == (P, NO_PRODUCER_ID)


@pytest.mark.parametrize("reason", [Reason.IMAGE, Reason.VERIFICATION, Reason.WALK])
def test_waiting_batch_blocks_its_own_line_alone(reason: Reason) -> None:
    """Order is kept per partition and producer id; no producer delays another."""
    waiting = held(reason)
    found = lines_of(waiting)
    assert found.blocker(key()) is waiting
    assert found.blocker(key(producer_id=6)) is None
    assert found.blocker(key(Q)) is None


def test_batch_that_waits_for_predecessors_lets_others_pass() -> None:
    ahead, walking = held(Reason.PREDECESSORS, 30.0), held()
    found = lines_of(ahead)
    assert found.blocker(key()) is None
    found.add(walking)
    assert found.blocker(key()) is walking
    assert found.ahead(key()) == [ahead]


def test_batch_keeps_its_place_when_its_reason_changes() -> None:
    first, second = held(Reason.IMAGE, 100.0), held(Reason.IMAGE, 100.0)
    found = lines_of(first, second)
    found.wait_on(second, Reason.WALK, NEVER_MS)
    found.wait_on(first, Reason.WALK, NEVER_MS)
    assert found.first(key(), Reason.WALK) is first
    assert list(found) == [first, second]


def test_removed_batches_leave_no_line_and_no_bytes() -> None:
    first, second = held(), held(sequence=1)
    found = lines_of(first, second)
    assert found.held_bytes == 2 * len(first.records)
    found.remove(first)
    assert list(found.by_key) == [key()] and found.first(key(), Reason.WALK) is second
    found.remove(second)
    assert (len(found), found.held_bytes, found.by_key) == (0, 0, {})


def test_validated_form_replaces_the_copy_of_a_batch() -> None:
    """A waiting batch has one copy, and the budget counts that one."""
    one = held()
    found = lines_of(one)
    valid = ValidBatch(cast(Any, one.header), bytes(one.records) + b"longer", -1)
    found.walked(one, valid)
    assert one.records is valid.data and found.held_bytes == len(valid.data)
    found.remove(one)
    assert found.held_bytes == 0


def test_one_budget_in_bytes_and_batches_limits_all_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounded memory: one batch may wait, however large; the second needs room."""
    found = HeldLines()
    assert found.has_room(lines.HELD_BYTES_MAX + 1)
    found.add(held(Reason.IMAGE, 100.0))
    size = found.held_bytes
    monkeypatch.setattr(lines, "HELD_BYTES_MAX", 2 * size)
    assert found.has_room(size) and not found.has_room(size + 1)
    monkeypatch.setattr(lines, "HELD_MAX", 1)
    assert not found.has_room(1)


def test_deadlines_are_met_earliest_first() -> None:
    late, early = held(Reason.VERIFICATION, 30.0), held(Reason.PREDECESSORS, 20.0)
    found = lines_of(late, held(), early)
    assert found.next_deadline_ms() == 20.0
    assert found.overdue(19.0) == []
    assert found.overdue(30.0) == [early, late]


def test_deadline_of_a_removed_or_changed_batch_is_not_met() -> None:
    removed, changed, walking = (held(Reason.IMAGE, until) for until in (10.0, 20.0, 30.0))
    found = lines_of(removed, changed, walking)
    found.remove(removed)
    found.wait_on(changed, Reason.PREDECESSORS, 40.0)
    found.wait_on(walking, Reason.WALK, NEVER_MS)
    assert found.next_deadline_ms() == 40.0
    assert found.overdue(39.0) == [] and found.overdue(40.0) == [changed]
