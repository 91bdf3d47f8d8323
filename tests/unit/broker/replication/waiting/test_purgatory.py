"""Waits that end once: by their answer, their deadline or their connection."""

from __future__ import annotations

import pytest

from broker.replication.waiting.purgatory import TICK_MS, Purgatory, Wait


class Probe(Wait):
    def __init__(self, log: list[str], name: str) -> None:
        super().__init__()
        self.log = log
        self.name = name
        self.then: object = None

    def expired(self) -> None:
        self.log.append(f"{self.name} expired")
        if callable(self.then):
            self.then()

    def dropped(self) -> None:
        self.log.append(f"{self.name} dropped")


def test_a_wait_never_ends_before_its_deadline_and_ends_within_one_tick_after_it() -> None:
    log: list[str] = []
    purgatory = Purgatory()
    purgatory.add(Probe(log, "a"), 1002.5)
    due_ms = purgatory.next_deadline_ms()
    assert due_ms is not None
    assert 1002.5 <= due_ms < 1002.5 + TICK_MS
    assert purgatory.expire(1002.4) == 0
    assert purgatory.expire(due_ms) == 1
    assert log == ["a expired"]
    assert len(purgatory) == 0
    assert purgatory.next_deadline_ms() is None


def test_removed_waits_neither_expire_nor_hold_the_timer() -> None:
    log: list[str] = []
    purgatory = Purgatory()
    first, second = Probe(log, "first"), Probe(log, "second")
    purgatory.add(first, 100, owner=7)
    purgatory.add(second, 200, owner=7)
    assert purgatory.remove(first)
    assert not purgatory.remove(first)
    assert purgatory.next_deadline_ms() == 200
    purgatory.expire(150)
    purgatory.expire(200)
    assert log == ["second expired"]
    assert not purgatory.remove(second)


def test_waits_end_in_the_order_of_their_deadlines() -> None:
    log: list[str] = []
    purgatory = Purgatory()
    for name, deadline_ms in (("c", 300), ("a", 100), ("b", 200), ("a2", 100)):
        purgatory.add(Probe(log, name), deadline_ms)
    assert purgatory.expire(1000) == 4
    assert log == ["a expired", "a2 expired", "b expired", "c expired"]


def test_a_closed_connection_takes_its_waits_with_it() -> None:
    log: list[str] = []
    purgatory = Purgatory()
    mine, other = Probe(log, "mine"), Probe(log, "other")
    purgatory.add(mine, 100, owner=1)
    purgatory.add(other, 100, owner=2)
    assert purgatory.drop_owner(1) == 1
    assert purgatory.drop_owner(1) == 0
    assert not mine.waiting
    purgatory.expire(100)
    assert log == ["mine dropped", "other expired"]


def test_answering_one_wait_may_end_another_of_the_same_tick() -> None:
    log: list[str] = []
    purgatory = Purgatory()
    first, second = Probe(log, "first"), Probe(log, "second")
    first.then = lambda: purgatory.remove(second)
    purgatory.add(first, 100)
    purgatory.add(second, 100)
    assert purgatory.expire(100) == 1
    assert log == ["first expired"]


def test_a_wait_cannot_wait_twice() -> None:
    purgatory = Purgatory()
    wait = Probe([], "x")
    purgatory.add(wait, 1)
    with pytest.raises(AssertionError):
        purgatory.add(wait, 2)


def test_a_wait_that_has_no_answer_to_its_deadline_is_a_fault_of_ours() -> None:
    purgatory = Purgatory()
    purgatory.add(Wait(), 1)
    with pytest.raises(AssertionError, match="Wait has no answer to its deadline"):
        purgatory.expire(100)


def test_of_a_connection_that_waits_often_each_wait_ends_by_itself() -> None:
    log: list[str] = []
    purgatory = Purgatory()
    first, second = Probe(log, "first"), Probe(log, "second")
    for wait in (first, second):
        purgatory.add(wait, 1, owner=7)
    assert purgatory.remove(first)
    assert purgatory.drop_owner(7) == 1
    assert not purgatory.remove(second)
    assert log == ["second dropped"]
