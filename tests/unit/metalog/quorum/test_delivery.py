"""Delivery of committed batches one by one, each decoded only then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from metalog.quorum.batches import Batch
from metalog.quorum.delivery import Delivery
from metalog.quorum.log import MetadataLog
from runtime.errors import InvariantViolated

BATCHES = [Batch(base, base + 9, 1, 0, 100, ("record",)) for base in range(0, 100, 10)]


class Holes(set[tuple[int, int]]):
    """Pairs of the first missing offset and the next batch's."""

    def has(self, first: int, end: int) -> bool:
        return (first, end) in self


class Log:
    """A log that reads at most five batches at once. `decoded` are the base offsets in order."""

    latest_snapshot = None
    start_offset = 0

    def __init__(self) -> None:
        self.decoded: list[int] = []
        self.reads: list[int] = []
        self.holes = Holes()

    def read_committed(self, offset: int, max_bytes: int) -> Iterator[Batch]:
        self.reads.append(offset)
        first = offset // 10
        for batch in BATCHES[first : first + 5]:
            self.decoded.append(batch.base_offset)
            yield batch


class Listener:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        return

    def handle_commit(self, batch: Batch) -> None:
        self.heard.append(batch.base_offset)

    def handle_snapshot(self, snapshot: Any) -> None:
        return


def started(log: Log, *listeners: Listener) -> Delivery:
    delivery = Delivery(cast(MetadataLog, log), 1)
    for listener in listeners:
        delivery.add(listener)
    delivery.committed(100)
    return delivery


def test_a_step_decodes_one_batch() -> None:
    """Otherwise a thousand partitions in each batch would block the loop for all batches at
    once."""
    log, listener = Log(), Listener()
    delivery = started(log, listener)
    for steps in range(1, 11):
        assert delivery.step()
        assert log.decoded == listener.heard == [10 * n for n in range(steps)]
    assert not delivery.step()
    assert log.reads == [0, 50]


def test_each_is_decoded_once_for_all_listeners() -> None:
    log, listeners = Log(), (Listener(), Listener())
    delivery = started(log, *listeners)
    while delivery.step():
        pass
    assert log.decoded == listeners[0].heard == listeners[1].heard == list(range(0, 100, 10))


def test_delivery_does_not_read_remembered_batches() -> None:
    log, listener = Log(), Listener()
    delivery = started(log, listener)
    delivery.remember(BATCHES[1])
    while delivery.step():
        pass
    assert listener.heard == list(range(0, 100, 10))
    assert log.reads == [0, 20, 70]


def test_delivery_reads_again_after_log_was_replaced() -> None:
    log, listener = Log(), Listener()
    delivery = started(log, listener)
    delivery.step()
    delivery.forget_from(0)
    delivery.step()
    assert log.reads == [0, 10]


@pytest.mark.parametrize("gone", [[0], [3], [0, 1, 6]])
def test_delivery_of_a_log_with_holes_goes_on_at_the_next_batch(
    gone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka 4.3.1 reads a metadata log from its start, and past missing batches."""
    kept = [batch for at, batch in enumerate(BATCHES) if at not in gone]

    def read_committed(offset: int, max_bytes: int) -> Iterator[Batch]:
        return iter([batch for batch in kept if batch.last_offset >= offset][:5])

    log, listener = Log(), Listener()
    monkeypatch.setattr(log, "read_committed", read_committed)
    log.holes = Holes({(0, 10), (30, 40), (0, 20), (60, 70)})
    delivery = started(log, listener)
    while delivery.step():
        pass
    assert listener.heard == [batch.base_offset for batch in kept]


def test_delivery_stops_the_node_at_a_batch_that_was_lost_since_the_log_was_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M14: an image without a committed batch differs from those of all other nodes."""
    log = Log()
    monkeypatch.setattr(log, "read_committed", lambda *_: iter(BATCHES[1:]))
    with pytest.raises(InvariantViolated, match="the batch at offset 0 begins at 10"):
        started(log, Listener()).step()


def test_an_offset_within_a_batch_is_no_place_to_begin() -> None:
    log = Log()
    delivery = started(log, Listener())
    delivery.remember(Batch(0, 4, 1, 0, 100, ("record",)))
    delivery.step()
    with pytest.raises(InvariantViolated, match="at offset 5 begins at 0"):
        delivery.step()
