"""Checks of histories: a correct one passes, and each way to corrupt it is found by its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftbox.chaos.checks import BROKEN, Finding, is_broken, judge, summary
from kraftbox.chaos.history import (
    Assign,
    End,
    Fault,
    History,
    Poll,
    Process,
    Send,
    SendOutcome,
    Topic,
    Transaction,
    value_id,
)

PRODUCER, CONSUMER, READER = 1, 2, 3
COUNT = 10


def value(number: int) -> int:
    return value_id(PRODUCER, number)


def send(number: int, offset: int, outcome: SendOutcome = SendOutcome.OK, **more: object) -> Send:
    begin_us = 1000 + number * 10
    made = Send(
        PRODUCER, 0, 0, value(number), begin_us, begin_us + 5, outcome, offset, number,
        producer_id=7,
    )  # fmt: skip
    return made._replace(**more)  # type: ignore[arg-type]


def poll(process: int, offsets: list[int], at_us: int, final: bool = False) -> Poll:
    return Poll(process, 0, 0, at_us, at_us + 3, offsets, [value(n) for n in offsets], final)


def clean() -> History:
    """Return a history of ten sends, with values equal to offsets, read at once and again at the
    end."""
    return History(
        topics=[Topic("t", bytes(16), 1, 3, 2)],
        processes=[
            Process(PRODUCER, "producer", "test"),
            Process(CONSUMER, "consumer", "test"),
            Process(READER, "reader", "test"),
        ],
        sends=[send(number, number) for number in range(COUNT)],
        polls=[
            poll(CONSUMER, [0, 1, 2], 1100),
            poll(CONSUMER, [], 1105),
            poll(CONSUMER, [3, 4, 5, 6], 1110),
            poll(READER, list(range(COUNT)), 2000, final=True),
        ],
        assigns=[Assign(CONSUMER, 0, 0, 900, 0), Assign(READER, 0, 0, 1900, 0)],
        ends=[End(READER, 0, 0, 1950, 1960, COUNT, final=True)],
        faults=[Fault("kill", [1], 1020, 1050)],
    )


def with_send(history: History, number: int, **changes: object) -> History:
    sends = list(history.sends)
    sends[number] = sends[number]._replace(**changes)  # type: ignore[arg-type]
    return replace(history, sends=sends)


def with_poll(history: History, index: int, **changes: object) -> History:
    polls = list(history.polls)
    polls[index] = polls[index]._replace(**changes)  # type: ignore[arg-type]
    return replace(history, polls=polls)


def final_reads(history: History, offsets: list[int], values: list[int]) -> History:
    return with_poll(history, 3, offsets=offsets, values=values)


def rules(findings: list[Finding]) -> set[str]:
    return {finding.rule.partition(" ")[0] for finding in findings}


def test_a_clean_history_is_clean() -> None:
    assert judge(clean()) == []
    assert summary(clean()) == {
        "sends": 10, "ok": 10, "failed": 0, "unknown": 0, "polls": 4, "read": 17, "faults": 1,
    }  # fmt: skip


def test_an_empty_history_is_clean() -> None:
    assert judge(History()) == []


def lost_in_the_middle() -> History:
    offsets = [n for n in range(COUNT) if n != 8]
    return final_reads(clean(), offsets, [value(n) for n in offsets])


def lost_at_the_end() -> History:
    history = final_reads(clean(), list(range(8)), [value(n) for n in range(8)])
    return replace(history, ends=[history.ends[0]._replace(offset=8)])


def lost_after_it_was_read() -> History:
    offsets = [n for n in range(COUNT) if n != 4]
    return final_reads(clean(), offsets, [value(n) for n in offsets])


def duplicated() -> History:
    history = final_reads(
        clean(), list(range(COUNT + 1)), [*(value(n) for n in range(COUNT)), value(9)]
    )
    return replace(history, ends=[history.ends[0]._replace(offset=COUNT + 1)])


def reordered_by_retries() -> History:
    swapped = [*range(7), 8, 7, 9]
    history = clean()
    history = with_send(history, 7, offset=8)
    history = with_send(history, 8, offset=7)
    return final_reads(history, list(range(COUNT)), [value(n) for n in swapped])


def reordered_unknown() -> History:
    """Return a history whose unknown send arrives late, after a later one."""
    history = with_send(clean(), 7, outcome=SendOutcome.UNKNOWN, offset=-1)
    history = with_send(history, 8, offset=7)
    swapped = [*range(7), 8, 7, 9]
    return final_reads(history, list(range(COUNT)), [value(n) for n in swapped])


def failed_but_read() -> History:
    return with_send(clean(), 5, outcome=SendOutcome.FAILED, offset=-1, error="NOT_ENOUGH_REPLICAS")


def never_sent() -> History:
    history = clean()
    return replace(history, sends=history.sends[:-1])


def somebody_elses() -> History:
    return with_poll(clean(), 3, values=[*(value(n) for n in range(COUNT - 1)), -1])


def read_before_it_was_sent() -> History:
    return with_send(clean(), 2, begin_us=1500, end_us=1600)


def two_values_at_one_offset() -> History:
    """P6: return a history whose consumer read from a leader that was then truncated."""
    return with_poll(clean(), 0, values=[value(0), value(1), value(9)])


def acknowledged_elsewhere() -> History:
    return with_send(clean(), 6, offset=COUNT + 5)


def skipped_between_polls() -> History:
    return with_poll(clean(), 2, offsets=[5, 6], values=[value(5), value(6)])


def skipped_inside_a_poll() -> History:
    return with_poll(clean(), 2, offsets=[3, 6], values=[value(3), value(6)])


def went_back_between_polls() -> History:
    return with_poll(clean(), 2, offsets=[2, 3], values=[value(2), value(3)])


def went_back_inside_a_poll() -> History:
    return with_poll(clean(), 2, offsets=[3, 4, 3], values=[value(3), value(4), value(3)])


def not_read_to_the_end() -> History:
    history = clean()
    return replace(history, ends=[history.ends[0]._replace(offset=COUNT + 3)])


def never_read_at_the_end() -> History:
    history = clean()
    return replace(history, polls=history.polls[:3])


def nothing_after_the_fault() -> History:
    history = clean()
    for number in range(5, COUNT):
        history = with_send(history, number, outcome=SendOutcome.UNKNOWN, offset=-1)
    return history


def read_but_gone() -> History:
    """Return a history with an unknown send that a consumer has read, and that is in no log at the
    end."""
    history = with_send(clean(), 6, outcome=SendOutcome.UNKNOWN, offset=-1)
    offsets = [n for n in range(COUNT) if n != 6]
    return final_reads(history, offsets, [value(n) for n in offsets])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lost_in_the_middle, {"H3", "H7"}),
        (lost_at_the_end, {"H9"}),
        (lost_after_it_was_read, {"H3", "H7"}),
        (duplicated, {"H4"}),
        (reordered_by_retries, {"H8"}),
        (reordered_unknown, {"H8"}),
        (failed_but_read, {"H2"}),
        (never_sent, {"phantom"}),
        (somebody_elses, {"H1", "phantom", "H9"}),
        (read_before_it_was_sent, {"H10"}),
        (two_values_at_one_offset, {"H1", "H4"}),
        (acknowledged_elsewhere, {"H4"}),
        (skipped_between_polls, {"H5"}),
        (skipped_inside_a_poll, {"H7"}),
        (went_back_between_polls, {"H6"}),
        (went_back_inside_a_poll, {"H7"}),
        (not_read_to_the_end, {"H12"}),
        (never_read_at_the_end, {"H12"}),
        (nothing_after_the_fault, {"P26"}),
        (read_but_gone, {"P6", "H7"}),
    ],
)  # fmt: skip
def test_each_corruption_is_found_by_its_rule(
    make: Callable[[], History], expected: set[str]
) -> None:
    findings = [finding for finding in judge(make()) if finding.severity == BROKEN]
    assert rules(findings) == expected
    assert is_broken(findings)
    for finding in findings:
        assert finding.examples and finding.total >= len(finding.examples)


def test_an_unknown_send_may_be_there_or_not() -> None:
    there = with_send(clean(), 9, outcome=SendOutcome.UNKNOWN, offset=-1)
    assert judge(there) == []
    offsets = list(range(9))
    absent = final_reads(there, offsets, [value(n) for n in offsets])
    assert judge(replace(absent, ends=[absent.ends[0]._replace(offset=9)])) == []


def test_check_allows_consumer_with_new_assignment_to_go_back() -> None:
    history = went_back_between_polls()
    history.assigns.append(Assign(CONSUMER, 0, 0, 1109, 2))
    assert judge(history) == []


def test_a_duplicate_whose_place_the_broker_forgot_is_acknowledged() -> None:
    assert judge(with_send(clean(), 4, offset=-1)) == []


def test_without_idempotence_another_order_is_noted_only() -> None:
    history = reordered_by_retries()
    history.sends[:] = [one._replace(producer_id=-1) for one in history.sends]
    findings = judge(history)
    assert rules(findings) == {"H8"} and not is_broken(findings)


def test_an_old_end_of_the_log_is_noted() -> None:
    history = clean()
    history.ends.append(End(CONSUMER, 0, 0, 1200, 1201, 4))
    findings = judge(history)
    assert rules(findings) == {"stale-end"} and not is_broken(findings)


def test_acks_zero_promises_nothing() -> None:
    history = with_send(lost_at_the_end(), 9, acks=0, offset=-1)
    history = with_send(history, 8, acks=0, offset=-1)
    assert judge(history) == []


def transactions(first: SendOutcome, second: SendOutcome) -> History:
    history = clean()
    history = with_send(history, 2, transaction=1)
    history = with_send(history, 3, transaction=2)
    outcomes = (first, second)
    history.transactions[:] = [
        Transaction(number, PRODUCER, 1000, 1100, outcome)
        for number, outcome in enumerate(outcomes, 1)
    ]
    return history


def test_check_finds_read_of_aborted_transaction() -> None:
    assert judge(transactions(SendOutcome.OK, SendOutcome.OK)) == []
    assert rules(judge(transactions(SendOutcome.FAILED, SendOutcome.OK))) == {"H2"}


def test_transactions_that_read_from_each_other_in_a_circle() -> None:
    history = transactions(SendOutcome.OK, SendOutcome.OK)
    history.polls += [
        Poll(4, 0, 0, 1100, 1101, [2], [value(2)], transaction=2),
        Poll(5, 0, 0, 1100, 1101, [3], [value(3)], transaction=1),
    ]
    (finding,) = judge(history)
    assert finding.rule == "H11 wr-cycle"
    assert finding.examples == ["transactions 1 -> 2 -> 1"]


def test_reading_from_a_transaction_without_a_circle_is_fine() -> None:
    history = transactions(SendOutcome.OK, SendOutcome.OK)
    history.polls.append(Poll(4, 0, 0, 1100, 1101, [2], [value(2)], transaction=2))
    assert judge(history) == []


def test_findings_name_partition_offset_and_value() -> None:
    finding, _noted = judge(lost_at_the_end())
    assert finding.total == 2
    assert finding.examples[0] == (
        "t-0 offset 8: value 1/8 was acknowledged; the final read ended at 8"
    )
