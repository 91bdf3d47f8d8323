"""Open and unreplicated transactions of a log, and its last stable offset (T5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.batch.header import BatchHeader, parse_header
from protocol.batch.records import Producer
from storage.log.producers import EndMarker, ProducerStates
from storage.log.unstable import EndedTxn, UnstableTransactions
from testkit.memory.logs import batch

MANY = 10_000


class Counted(int):
    """An offset that counts comparisons."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def transactional(producer_id: int) -> BatchHeader:
    return parse_header(batch(producer=Producer(producer_id, 0, 0, transactional=True)))


def marker(producer_id: int) -> BatchHeader:
    header = parse_header(batch(producer=Producer(producer_id, 0, -1, transactional=True)))
    header.attributes |= 0x20
    return header


def test_first_unstable_offset_of_many_transactions_compares_no_offsets() -> None:
    """T5: each fetch reads it, at any number of open transactions."""
    states = ProducerStates(1000)
    for at in range(MANY):
        states.apply(transactional(at), Counted(at))
    for at in range(1, MANY, 2):
        states.apply(marker(at), Counted(MANY + at), EndMarker(True, 0))
    Counted.comparisons = 0
    assert states.first_unstable_offset == 0
    assert Counted.comparisons == 0


def test_ends_of_many_transactions_compare_each_marker_once() -> None:
    """The oldest transaction ends first: no search for the next one."""
    unstable = UnstableTransactions()
    for at in range(MANY):
        unstable.begin(Counted(at))
    for at in range(MANY):
        unstable.end(Counted(at), Counted(MANY + at))
    Counted.comparisons = 0
    for at in range(MANY):
        unstable.settle(MANY + at + 1)
        assert unstable.first_offset == (at + 1 if at + 1 < MANY else None)
    assert Counted.comparisons <= 2 * MANY


@given(st.lists(st.integers(-3, 9), max_size=80))
def test_unstable_transactions_equal_a_search_of_all(steps: list[int]) -> None:
    """A step begins a transaction (-1), moves the high watermark (-2, -3), or ends the n-th open
    one."""
    unstable = UnstableTransactions()
    opened: list[int] = []
    ended: list[EndedTxn] = []
    end = high_watermark = 0
    for step in steps:
        if step == -1:
            unstable.begin(end)
            opened.append(end)
            end += 1
        elif step < 0:
            high_watermark = min(end, high_watermark - step)
            ended = [txn for txn in ended if txn.marker_offset >= high_watermark]
            unstable.settle(high_watermark)
        elif opened:
            first = opened.pop(step % len(opened))
            unstable.end(first, end)
            ended.append(EndedTxn(end, first))
            end += 1
        firsts = [*opened, *(txn.first_offset for txn in ended)]
        assert unstable.first_offset == min(firsts, default=None)
        assert unstable.first_open_offset == min(opened, default=None)


def test_added_transactions_in_any_order_are_sorted() -> None:
    unstable = UnstableTransactions()
    unstable.begin(7)
    unstable.add([5, 3], [EndedTxn(6, 1), EndedTxn(4, 2)])
    assert (unstable.first_offset, unstable.first_open_offset) == (1, 3)
    unstable.settle(5)
    assert unstable.first_offset == 1
    unstable.settle(7)
    unstable.forget(3)
    assert unstable.first_offset == 5
    unstable.clear()
    assert (unstable.first_offset, unstable.first_open_offset) == (None, None)
