"""Guards of unverified transactions, and the order of the batches that wait for them (KIP-890)."""

from __future__ import annotations

import pytest

from broker.replication.appends import verification
from broker.replication.appends.verification import Arrival, Guard, Outcome, Step, Verifications
from protocol.errors import ErrorCode

PRODUCER = 5
LAST_SEQUENCE = 2**31 - 1


class World:
    """Verifications whose batches are named by their first sequence number."""

    def __init__(self) -> None:
        self.all: Verifications[str, str] = Verifications()

    def arrives(
        self,
        sequence: int,
        *,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        partition: str = "p",
        is_open: bool = False,
    ) -> Arrival[str]:
        return self.all.arrived(
            partition,
            f"batch {sequence}",
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            is_open=is_open,
        )

    def requests(self, sequence: int, **where: int) -> Guard:
        """Let a batch arrive that sends a request. Returns: its guard."""
        arrival = self.arrives(sequence, **where)  # type: ignore[arg-type]
        assert arrival.step is Step.REQUEST and arrival.guard is not None
        return arrival.guard

    def answer(self, guard: Guard, error: ErrorCode = ErrorCode.NONE) -> list[Outcome[str]]:
        return self.all.answered("p", guard, error)


def names(outcomes: list[Outcome[str]]) -> list[str]:
    return [one.batch for one in outcomes]


def test_first_batch_of_a_transaction_sends_a_request() -> None:
    world = World()
    guard = world.requests(0)
    assert world.answer(guard) == [Outcome("batch 0", guard)]


def test_batch_of_an_open_transaction_is_appended_without_guard() -> None:
    world = World()
    assert world.arrives(3, is_open=True).step is Step.APPEND
    assert world.all.guard("p", PRODUCER) is None


def test_open_transaction_of_a_newer_epoch_removes_the_guard_of_an_older_one() -> None:
    world = World()
    world.requests(7)
    arrival = world.arrives(0, epoch=1, is_open=True)
    assert arrival.step is Step.APPEND
    assert names([*arrival.displaced]) == ["batch 7"]
    assert world.all.guard("p", PRODUCER) is None


def test_later_batches_wait_behind_the_first_and_send_no_request() -> None:
    """One guard per producer and partition, one request for all batches that wait for it."""
    world = World()
    guard = world.requests(0)
    assert [world.arrives(at).step for at in (1, 2)] == [Step.WAIT] * 2
    assert world.answer(guard) == [Outcome(f"batch {at}", guard) for at in range(3)]


def test_other_producers_and_partitions_send_their_own_requests() -> None:
    """Order is kept per partition and producer id alone."""
    world = World()
    guards = {world.requests(0), world.requests(0, producer_id=6)}
    other = world.arrives(0, partition="q")
    assert other.step is Step.REQUEST and len({*guards, other.guard}) == 3


def test_waiting_batches_are_appended_in_sequence_order() -> None:
    """KAFKA-14920: batches of a producer reach a new leader in any order."""
    world = World()
    guard = world.requests(4)
    world.arrives(2)
    world.arrives(3)
    assert names(world.answer(guard)) == ["batch 2", "batch 3", "batch 4"]


def test_sequence_order_continues_with_0_after_the_largest_sequence() -> None:
    world = World()
    guard = world.requests(0)
    world.arrives(LAST_SEQUENCE)
    assert guard.lowest_sequence == LAST_SEQUENCE
    assert names(world.answer(guard)) == [f"batch {LAST_SEQUENCE}", "batch 0"]


def test_batch_ahead_of_the_lowest_waiting_sequence_is_not_admitted() -> None:
    """KAFKA-14920: the lowest batch went with its connection; the next one must not begin."""
    world = World()
    guard = world.requests(0)
    world.arrives(1)
    world.all.withdrawn("p", PRODUCER, "batch 0")
    (outcome,) = world.answer(guard)
    assert outcome == Outcome("batch 1", guard)
    assert not guard.admits(1) and guard.admits(0)


def test_lowest_sequence_survives_the_answer_until_its_batch_is_appended() -> None:
    world = World()
    guard = world.requests(0)
    world.all.withdrawn("p", PRODUCER, "batch 0")
    assert world.answer(guard) == []
    again = world.requests(1)
    assert again is guard and not again.admits(1)
    world.all.cleared("p", PRODUCER)
    assert world.requests(1).admits(1)


def test_refusal_of_the_coordinator_refuses_all_waiting_batches() -> None:
    world = World()
    guard = world.requests(0)
    world.arrives(1)
    refused = world.answer(guard, ErrorCode.INVALID_TXN_STATE)
    assert refused == [Outcome(f"batch {at}", None, ErrorCode.INVALID_TXN_STATE) for at in range(2)]
    assert world.requests(0) is guard
    assert world.arrives(1).step is Step.WAIT


def test_answer_to_a_removed_guard_has_no_effect() -> None:
    """An append, a marker, expiry or a truncation removes a guard."""
    world = World()
    guard = world.requests(0)
    world.all.cleared("p", PRODUCER)
    following = world.requests(0)
    assert following is not guard
    assert world.answer(guard) == []
    assert names(world.answer(following)) == ["batch 0"]


def test_second_answer_to_one_request_has_no_effect() -> None:
    world = World()
    guard = world.requests(0)
    world.answer(guard)
    assert world.answer(guard) == []


def test_newer_epoch_displaces_the_guard_and_the_batches_of_an_older_one() -> None:
    """KAFKA-19690: the epoch counts before the guard."""
    world = World()
    old = world.requests(7)
    arrival = world.arrives(0, epoch=1)
    assert arrival.step is Step.REQUEST and arrival.guard is not old
    assert arrival.displaced == [Outcome("batch 7", None, ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert world.answer(old) == []


def test_batch_of_an_older_epoch_than_the_waiting_one_is_fenced() -> None:
    world = World()
    guard = world.requests(0, epoch=1)
    assert world.arrives(8) == Arrival(Step.FENCED)
    assert names(world.answer(guard)) == ["batch 0"]


def test_end_of_leadership_refuses_the_waiting_batches_of_the_partition_alone() -> None:
    world = World()
    guard = world.requests(0)
    world.arrives(1)
    other = world.arrives(0, partition="q").guard
    assert other is not None
    assert world.all.ended("p") == [
        Outcome(f"batch {at}", None, ErrorCode.NOT_LEADER_OR_FOLLOWER) for at in range(2)
    ]
    assert world.answer(guard) == []
    assert names(world.all.answered("q", other, ErrorCode.NONE)) == ["batch 0"]


def test_guards_without_waiting_batches_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: a client may begin transactions of any number of producers."""
    monkeypatch.setattr(verification, "IDLE_MAX", 2)
    world = World()
    for producer_id in range(4):
        world.answer(world.requests(0, producer_id=producer_id), ErrorCode.INVALID_TXN_STATE)
    assert [at for at in range(4) if world.all.guard("p", at) is not None] == [2, 3]
    waiting = world.requests(0, producer_id=2)
    for producer_id in (4, 5):
        world.answer(world.requests(0, producer_id=producer_id), ErrorCode.INVALID_TXN_STATE)
    assert names(world.answer(waiting)) == ["batch 0"], "it does not count while a batch waits"
