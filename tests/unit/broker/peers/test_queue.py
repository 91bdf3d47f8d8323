"""Queues of items for other brokers: one request in flight each, limits, deadlines, retries."""

from __future__ import annotations

import pytest

from broker.peers.queue import Backoff, PeerQueues, QueueLimits

LIMITS = QueueLimits(items=10, size_bytes=100, request_items=4, request_bytes=40)
BACKOFF = Backoff(first_ms=10.0, max_ms=35.0)
AT_ONCE = -float("inf")


def queues(*items: str, backoff: Backoff | None = None, size_bytes: int = 1) -> PeerQueues[str]:
    """Return queues with these items for broker 1."""
    found: PeerQueues[str] = PeerQueues(LIMITS, backoff)
    for item in items:
        assert found.add(1, item, size_bytes)
    return found


def test_items_that_arrive_during_a_request_go_into_the_next_one() -> None:
    """One request in flight per broker."""
    found = queues("a")
    assert found.next_request(1, 0.0) == ["a"]
    assert found.add(1, "b", 1) and found.add(1, "c", 1)
    assert found.ready(0.0) == [] and found.next_request(1, 0.0) == []
    assert found.answered(1, 0.0) == []
    assert found.ready(0.0) == [1]
    assert found.next_request(1, 0.0) == ["b", "c"]
    found.answered(1, 0.0)
    assert len(found) == 0


def test_request_is_limited_in_items_and_bytes() -> None:
    found = queues(*"abcdef")
    assert found.next_request(1, 0.0) == ["a", "b", "c", "d"]
    found = queues(*"abc", size_bytes=15)
    assert found.next_request(1, 0.0) == ["a", "b"]


def test_item_larger_than_a_request_is_sent_alone() -> None:
    found = queues("a")
    assert found.add(1, "large", 99)
    assert found.next_request(1, 0.0) == ["a"]
    found.answered(1, 0.0)
    assert found.next_request(1, 0.0) == ["large"]


def test_full_queue_of_a_broker_refuses_items_and_accepts_those_of_others() -> None:
    """Bounded in items and bytes; items in flight count."""
    found = queues(*"abcdefghij")
    assert found.next_request(1, 0.0)
    assert not found.add(1, "k", 1)
    assert found.add(2, "k", 101), "one item may always wait"
    assert not found.add(2, "l", 1)
    found.answered(1, 0.0)
    assert found.add(1, "k", 1)


def test_failed_items_are_returned_without_backoff() -> None:
    found = queues("a", "b")
    found.next_request(1, 0.0)
    assert found.failed(1, 0.0) == ["a", "b"]
    assert len(found) == 0
    assert found.add(1, "c", 1) and found.ready(0.0) == [1]


def test_failed_request_is_repeated_after_a_growing_backoff() -> None:
    """Failed items precede those that arrived in the meantime; the pause has a limit."""
    found = queues("a", backoff=BACKOFF)
    now_ms = 0.0
    for pause_ms in (10.0, 20.0, 35.0, 35.0):
        assert "a" in found.next_request(1, now_ms)
        assert found.failed(1, now_ms) == []
        assert found.ready(now_ms + pause_ms - 1) == []
        assert found.wake_ms() == now_ms + pause_ms
        now_ms += pause_ms
    assert found.next_request(1, now_ms) == ["a"]
    found.add(1, "b", 1)
    found.failed(1, now_ms)
    now_ms += 35.0
    assert found.next_request(1, now_ms) == ["a", "b"]
    found.answered(1, now_ms)
    found.add(1, "c", 1)
    assert found.next_request(1, now_ms) == ["c"]
    found.failed(1, now_ms)
    assert found.wake_ms() == now_ms + 10.0, "an answer ends the growth"


def test_failure_of_one_broker_delays_no_other() -> None:
    found = queues("a", backoff=BACKOFF)
    found.next_request(1, 0.0)
    found.failed(1, 0.0)
    found.add(2, "b", 1)
    assert found.ready(0.0) == [2]


def test_registration_ends_the_backoff_of_a_broker() -> None:
    found = queues("a", backoff=BACKOFF)
    found.next_request(1, 0.0)
    found.failed(1, 0.0)
    found.registered(1)
    found.registered(9)
    assert found.next_request(1, 0.0) == ["a"]


def test_item_that_is_sent_again_has_a_backoff_of_its_own() -> None:
    """An answered request contains items that the broker could not serve yet; others pass them."""
    found = queues("a", "b", backoff=BACKOFF)
    found.next_request(1, 0.0)
    assert found.answered(1, 0.0, again=["b"]) == []
    found.add(1, "c", 1)
    assert found.next_request(1, 0.0) == ["c"]
    found.answered(1, 0.0)
    assert found.wake_ms() == 10.0
    assert found.next_request(1, 10.0) == ["b"]
    found.answered(1, 10.0, again=["b"])
    assert found.wake_ms() == 30.0


def test_items_that_were_not_served_are_returned_without_backoff() -> None:
    found = queues("a", "b")
    found.next_request(1, 0.0)
    assert found.answered(1, 0.0, again=["b"]) == ["b"]
    assert len(found) == 0


def test_overdue_items_are_removed_wherever_they_are() -> None:
    """The deadline of an item ends its wait, too, if its request is in flight."""
    found: PeerQueues[str] = PeerQueues(LIMITS, BACKOFF)
    found.add(1, "sent", 1, deadline_ms=5.0)
    found.add(1, "kept", 1)
    found.next_request(1, 0.0)
    found.add(1, "waits", 1, deadline_ms=6.0)
    found.add(2, "other", 1, deadline_ms=7.0)
    assert found.wake_ms() == AT_ONCE
    found.next_request(2, 0.0)
    assert found.wake_ms() == 5.0
    assert found.overdue(4.0) == []
    assert found.overdue(6.0) == [(1, "sent"), (1, "waits")]
    assert found.failed(1, 6.0) == [] and len(found) == 2
    assert found.next_request(1, 16.0) == ["kept"]


def test_withdrawn_item_is_not_sent_and_its_answer_is_ignored() -> None:
    found = queues("a", "b", backoff=BACKOFF)
    assert found.withdraw(1, "a") and not found.withdraw(1, "a")
    assert not found.withdraw(9, "a")
    assert found.next_request(1, 0.0) == ["b"]
    assert found.withdraw(1, "b")
    assert found.answered(1, 0.0, again=["b"]) == []
    assert len(found) == 0 and found.wake_ms() is None


@pytest.mark.parametrize("end", ["answered", "failed"])
def test_freed_bytes_admit_new_items(end: str) -> None:
    found = queues("a", size_bytes=100)
    assert not found.add(1, "b", 1)
    found.next_request(1, 0.0)
    getattr(found, end)(1, 0.0)
    assert found.add(1, "b", 60)
    found.next_request(1, 0.0)
    assert found.add(1, "c", 40)
    getattr(found, end)(1, 0.0)
    assert found.add(1, "d", 60)
