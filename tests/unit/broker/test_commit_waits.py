"""Who waits for a high watermark is told when it gets there, in whatever order they came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.replication.partition import Partition
from protocol.errors import ErrorCode


class Told:
    def __init__(self) -> None:
        self.slots: list[tuple[str, ErrorCode]] = []

    def resolved(self, slot: str, error: ErrorCode) -> None:
        self.slots.append((slot, error))


def test_a_repeated_batch_does_not_wait_for_what_was_appended_after_it() -> None:
    log: Any = SimpleNamespace(high_watermark=10, log_start_offset=0, log_end_offset=30)
    partition = Partition("t", bytes(16), 0, node_id=1, log=log)
    partition.isr = partition.maximal_isr = frozenset({1})
    told = Told()
    for end_offset, slot in ((20, "first"), (30, "later"), (20, "first again"), (15, "older")):
        assert partition.wait_for_commit(end_offset, told, slot)
    log.high_watermark = 20
    partition._high_watermark_moved(20)
    none = ErrorCode.NONE
    assert [error for _, error in told.slots] == [none] * 3
    assert [slot for slot, _ in told.slots] == ["older", "first", "first again"]
    partition.validate()
