"""Waits for a watermark, notified when it is reached, whatever their order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.replication.partition.high_watermark import high_watermark_moved
from broker.replication.partition.partition import Partition
from broker.replication.replicas.effect_table import EffectTable
from broker.replication.waiting.offset_waits import OffsetWaits
from protocol.errors import ErrorCode


class Told:
    def __init__(self) -> None:
        self.slots: list[tuple[str, ErrorCode]] = []

    def resolved(self, slot: str, error: ErrorCode) -> None:
        self.slots.append((slot, error))


def test_a_repeated_batch_does_not_wait_for_what_was_appended_after_it() -> None:
    log: Any = SimpleNamespace(
        high_watermark=10, last_stable_offset=20, log_start_offset=0, log_end_offset=30
    )
    partition = Partition("t", bytes(16), 0, node_id=1, log=log)
    partition.isr = partition.maximal_isr = frozenset({1})
    told = Told()
    for end_offset, slot in ((20, "first"), (30, "later"), (20, "first again"), (15, "older")):
        assert partition.wait_for_commit(end_offset, told, slot)
    log.high_watermark = 20
    table = EffectTable(lambda partition: None)
    table.carry_out(partition, high_watermark_moved(partition, 20))
    none = ErrorCode.NONE
    assert [error for _, error in told.slots] == [none] * 3
    assert [slot for slot, _ in told.slots] == ["older", "first", "first again"]
    partition.validate()


def test_waits_end_by_offset_and_in_the_order_they_came() -> None:
    waits, told = OffsetWaits(), Told()
    for offset, slot in ((5, "a"), (7, "b"), (5, "c"), (6, "d")):
        waits.add(offset, told, slot)
    waits.reached(4)
    assert told.slots == []
    waits.reached(6)
    assert [slot for slot, _ in told.slots] == ["a", "c", "d"]
    assert [offset for offset, _, _ in waits] == [7]


def test_failed_offset_wait_is_notified_once() -> None:
    waits, told = OffsetWaits(), Told()
    waits.add(5, told, "a")
    waits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waits.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    waits.reached(9)
    assert told.slots == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
