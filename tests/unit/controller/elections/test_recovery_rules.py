"""Verdicts on a partition without leader: the replica to elect, or the condition to wait for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.log_facts import LogFact
from controller.elections.recovery_rules import (
    Standing,
    Verdict,
    WaitsFor,
    judge,
    without_recovery,
)

AGGRESSIVE, BALANCED, NONE = RecoveryStrategy


def fact(epoch: int, end: int) -> LogFact:
    return LogFact(epoch, end, 7, 0.0)


def standing(
    alive: str = "123", isr: str = "", elr: str = "", last_known: str = "12", min_isr: int = 2
) -> Standing:
    sets = (tuple(map(int, each)) for each in ("123", alive, isr, elr, last_known))
    return Standing(*sets, min_isr)


def answers(**ends: int) -> Mapping[int, LogFact]:
    """Parse answers: `_1=5` is broker 1's log of epoch 0 that ends at offset 5."""
    return {int(name[1:]): fact(0, end) for name, end in ends.items()}


ALL = answers(_1=5, _2=9, _3=7)


def waits(what: WaitsFor, brokers: str = "") -> Verdict:
    return Verdict(None, what, tuple(map(int, brokers)))


@pytest.mark.parametrize(
    ("given", "answered", "overdue", "expected"),
    [
        (standing(), {}, False, waits(WaitsFor.ANSWERS, "123")),
        (standing(), {}, True, waits(WaitsFor.ANSWERS, "123")),
        (standing(), answers(_1=5, _3=7), False, waits(WaitsFor.ANSWERS, "2")),
        (standing(), answers(_1=5, _3=7), True, Verdict(3)),
        (standing(), answers(_1=5), True, Verdict(1)),
        (standing(), ALL, False, Verdict(2)),
        # A broker that was fenced in between is not awaited, and its answer does not win.
        (standing(alive="13"), ALL, False, Verdict(3)),
        (standing(alive="13"), answers(_2=9), True, waits(WaitsFor.ANSWERS, "13")),
        (standing(alive=""), ALL, True, waits(WaitsFor.ANYBODY, "123")),
        # Members of ISR and ELR that cannot lead are not awaited; one that can lead ends the wait.
        (standing(alive="3", elr="1"), answers(_3=7), False, Verdict(3)),
        (standing(alive="13", elr="1"), {}, False, Verdict(1)),
        (standing(alive="13", isr="1"), {}, False, Verdict(1)),
    ],
)
def test_aggressive(
    given: Standing, answered: Mapping[int, LogFact], overdue: bool, expected: Verdict
) -> None:
    assert judge(AGGRESSIVE, given, answered, overdue=overdue) == expected


@pytest.mark.parametrize(
    ("given", "answered", "overdue", "expected"),
    [
        (standing(), {}, False, waits(WaitsFor.ANSWERS, "123")),
        # The timeout ends the wait for replicas that may lack records, never for the others.
        (standing(), answers(_1=5), True, waits(WaitsFor.ANSWERS, "2")),
        (standing(), answers(_1=5, _2=9), False, waits(WaitsFor.ANSWERS, "3")),
        (standing(), answers(_1=5, _2=4), True, Verdict(1)),
        (standing(), answers(_1=5, _2=4, _3=9), True, Verdict(3)),
        (standing(alive="12"), answers(_1=5, _2=4), False, Verdict(1)),
        (standing(alive="13"), answers(_1=5, _3=9), True, waits(WaitsFor.LAST_KNOWN, "2")),
        (standing(alive="13"), ALL, True, waits(WaitsFor.LAST_KNOWN, "2")),
        # The LastKnownELR is incomplete: every replica may have all records.
        (standing(last_known="1"), answers(_1=5), True, waits(WaitsFor.ANSWERS, "23")),
        (standing(last_known="1", alive="13"), ALL, True, waits(WaitsFor.LAST_KNOWN, "2")),
        (standing(last_known="1", min_isr=1, alive="1"), answers(_1=5), False, Verdict(1)),
        (standing(last_known="", alive="12"), ALL, True, waits(WaitsFor.LAST_KNOWN, "3")),
        # One of the replicas certainly has all records.
        (standing(alive="23", elr="1"), ALL, True, waits(WaitsFor.CLEAN_CANDIDATE, "1")),
        (standing(alive="23", isr="1"), ALL, True, waits(WaitsFor.CLEAN_CANDIDATE, "1")),
        (standing(alive="12", elr="1"), {}, False, Verdict(1)),
    ],
)
def test_balanced(
    given: Standing, answered: Mapping[int, LogFact], overdue: bool, expected: Verdict
) -> None:
    assert judge(BALANCED, given, answered, overdue=overdue) == expected


def test_with_none_only_a_clean_candidate_leads() -> None:
    assert judge(NONE, standing(), ALL, overdue=True) == waits(WaitsFor.OPERATOR)
    fenced = standing(alive="23", elr="1")
    assert judge(NONE, fenced, ALL, overdue=True) == waits(WaitsFor.CLEAN_CANDIDATE, "1")
    assert judge(NONE, standing(elr="1"), {}, overdue=False) == Verdict(1)


@pytest.mark.parametrize("strategy", [AGGRESSIVE, BALANCED])
def test_the_epoch_of_the_last_batch_comes_before_the_end_and_the_assignment_last(
    strategy: RecoveryStrategy,
) -> None:
    def winner(*facts: tuple[int, int]) -> int | None:
        told = {broker: fact(*each) for broker, each in enumerate(facts, 1)}
        return judge(strategy, standing(), told, overdue=False).winner

    assert winner((1, 100), (2, 5), (2, 4)) == 2
    assert winner((2, 4), (2, 5), (2, 5)) == 2
    assert winner((2, 5), (2, 5), (2, 5)) == 1
    assert winner((-1, 0), (-1, 0), (0, 1)) == 3


@pytest.mark.parametrize(
    ("strategy", "given", "electable", "expected"),
    [
        (AGGRESSIVE, standing(), True, waits(WaitsFor.ANYBODY, "123")),
        (BALANCED, standing(elr="3"), True, waits(WaitsFor.CLEAN_CANDIDATE, "3")),
        (NONE, standing(elr="3"), True, waits(WaitsFor.CLEAN_CANDIDATE, "3")),
        (BALANCED, standing(last_known="1"), True, waits(WaitsFor.LAST_KNOWN, "1")),
        (BALANCED, standing(last_known="1"), False, waits(WaitsFor.OPERATOR)),
        (NONE, standing(last_known="1"), True, waits(WaitsFor.OPERATOR)),
        (BALANCED, standing(last_known=""), True, waits(WaitsFor.OPERATOR)),
        (BALANCED, standing(last_known="12"), True, waits(WaitsFor.OPERATOR)),
    ],
)
def test_without_recovery_returns_the_verdict_of_the_strategy(
    strategy: RecoveryStrategy, given: Standing, electable: bool, expected: Verdict
) -> None:
    assert without_recovery(strategy, given, last_known_electable=electable) == expected
