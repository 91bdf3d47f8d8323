"""Waits on their own: the events that end each one, exactly once."""

from __future__ import annotations

from broker.replication.waiting.purgatory import Purgatory
from broker.replication.waiting.waits import FetchWait, ProduceWait
from protocol.errors import ErrorCode


class Answers:
    """Results of a produce request."""

    def __init__(self) -> None:
        self.marked: list[tuple[str, ErrorCode]] = []
        self.sent = 0

    def mark(self, slot: str, error: ErrorCode) -> None:
        self.marked.append((slot, error))

    def send(self, wait: ProduceWait) -> None:
        self.sent += 1


def test_a_produce_request_is_answered_when_its_last_slot_is_resolved() -> None:
    answers = Answers()
    wait = ProduceWait(answers.mark, answers.send)
    wait.pending += ["a", "b"]
    wait.resolved("b", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    wait.resolved("b", ErrorCode.NONE)
    assert answers.sent == 0
    wait.resolved("a", ErrorCode.NONE)
    assert (answers.marked, answers.sent) == ([("b", ErrorCode.NOT_LEADER_OR_FOLLOWER)], 1)


def test_produce_wait_at_its_deadline_marks_pending_slots_and_ignores_later_results() -> None:
    answers = Answers()
    wait = ProduceWait(answers.mark, answers.send)
    wait.pending += ["a", "b"]
    wait.resolved("a", ErrorCode.NONE)
    purgatory = Purgatory()
    purgatory.add(wait, 10.0)
    purgatory.expire(10.0)
    wait.resolved("b", ErrorCode.NONE)
    assert (answers.marked, answers.sent) == ([("b", ErrorCode.REQUEST_TIMED_OUT)], 1)


class Place:
    def __init__(self) -> None:
        self.waits: list[FetchWait] = []

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        self.waits.remove(wait)


def test_a_fetch_is_ready_when_its_bytes_are_there_or_something_else_happens() -> None:
    ready: list[FetchWait] = []
    wait = FetchWait(100, ready.append)
    wait.more_bytes(99)
    assert (ready, wait.touched, wait.interrupted) == ([], True, False)
    wait.more_bytes(1)
    assert ready == [wait]
    other = FetchWait(100, ready.append)
    other.interrupt()
    assert (ready[-1], other.touched, other.interrupted) == (other, True, True)


def test_a_fetch_whose_connection_has_gone_leaves_its_partitions() -> None:
    cancelled: list[bool] = []
    wait = FetchWait(1, lambda wait: None, lambda: cancelled.append(True))
    place = Place()
    place.waits.append(wait)
    wait.place = place
    wait.dropped()
    assert (place.waits, wait.place, wait.over, cancelled) == ([], None, True, [True])


def test_waits_without_an_awaiting_client_end_with_their_connection() -> None:
    answers, ready = Answers(), list[FetchWait]()
    purgatory = Purgatory()
    for wait in (ProduceWait(answers.mark, answers.send), FetchWait(1, ready.append)):
        purgatory.add(wait, 10.0, owner=3)
    assert purgatory.drop_owner(3) == 2
    assert (purgatory.expire(100.0), answers.sent, ready) == (0, 0, [])
