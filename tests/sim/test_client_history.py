"""Clients' history of a run, checked by the rules of `kraftbox chaos`; each rule finds its own
faults."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from kraftbox.chaos.checks import BROKEN, Finding
from simulation.judges import histories
from simulation.judges.client_history import LAST_READER, Saw, broken_rules
from simulation.schedule import draw_schedule
from simulation.swarm import run

pytestmark = pytest.mark.sim

KEY = (b"0123456789abcdef", 0)
QUICK = 7


@pytest.mark.parametrize(
    ("acked", "exists", "holds"), [(3, True, True), (2, True, False), (0, False, True)]
)
def test_writes_succeed_while_there_is_a_topic(acked: int, exists: bool, holds: bool) -> None:
    """P26, seed 9486: writes must be acknowledged at the end, unless no topic is left."""
    ledgers = SimpleNamespace(partitions=[SimpleNamespace(topic_id=KEY[0])])
    load = SimpleNamespace(acked=10 + acked, ledgers=ledgers)
    promises = SimpleNamespace(exists=lambda _topic_id: exists)
    world: Any = SimpleNamespace(load=load, promises=promises, acked_before_quiet=10)
    assert (histories.HistoryJudge(world).unsettled() is None) is holds


def send(value: bytes, offset: int, at_s: float, answer: str = "ok", **more: Any) -> Saw:
    return Saw("p", "send", "t-0", at_s, at_s + 0.1, answer, offset, (value,), KEY, **more)


def read(offset: int, *values: bytes, what: str = "read", client: str = "c", at_s: float) -> Saw:
    offsets = tuple(range(offset, offset + len(values)))
    return Saw(client, what, "t-0", at_s, at_s + 0.1, "ok", offset, values, KEY, offsets)


def final(*values: bytes) -> Saw:
    return read(0, *values, what="final", client=LAST_READER, at_s=90)


SENT = [send(b"a", 0, 1), send(b"b", 1, 2), send(b"c", 2, 3)]


def rules(*saw: Saw, without: frozenset[str] = frozenset()) -> set[str]:
    return {one.rule.split()[0] for one in broken_rules(saw, without)}


def test_a_clean_history_is_clean() -> None:
    assert (
        rules(*SENT, read(0, b"a", b"b", at_s=4), read(2, b"c", at_s=5), final(b"a", b"b", b"c"))
        == set()
    )


def test_h8_of_concurrent_sends_uses_the_order_of_their_begins() -> None:
    """H8: of two sends under way the first may end last, without an answer, and be acknowledged
    later."""
    lost = send(b"a", -1, 1, "? no answer", producer_id=5, serial=1)
    second = send(b"b", -1, 1, "? no answer", producer_id=5, serial=2)
    again = [send(b"a", 0, 2, producer_id=5, serial=3), send(b"b", 1, 2, producer_id=5, serial=4)]
    assert rules(second, lost, *again, final(b"a", b"b")) == set()
    assert rules(second, lost, final(b"b", b"a")) == {"H8"}


@pytest.mark.parametrize(
    ("saw", "rule"),
    [
        ([*SENT, read(0, b"b", at_s=4), final(b"a", b"b", b"c")], "H1"),
        ([send(b"x", -1, 1, "NOT_ENOUGH_REPLICAS"), final(b"x")], "H2"),
        ([*SENT, read(1, b"b", b"c", what="final", client=LAST_READER, at_s=9)], "H3"),
        ([*SENT, final(b"a", b"b", b"c", b"a")], "H4"),
        ([*SENT, read(0, b"a", at_s=4), read(2, b"c", at_s=5), final(b"a", b"b", b"c")], "H5"),
        ([*SENT, read(1, b"b", at_s=4), read(0, b"a", at_s=5), final(b"a", b"b", b"c")], "H6"),
        (
            [send(b"a", 1, 1, producer_id=5), send(b"b", 0, 2, producer_id=5), final(b"b", b"a")],
            "H8",
        ),
        ([*SENT, final(b"a", b"b")], "H9"),
    ],
)
def test_each_rule_finds_its_own(saw: list[Saw], rule: str) -> None:
    assert rule in rules(*saw)


def test_a_reader_that_is_placed_may_go_back() -> None:
    placed = Saw("c", "place", "t-0", 4.5, 4.5, "ok", 0, key=KEY)
    back = [read(1, b"b", at_s=4), placed, read(0, b"a", at_s=5)]
    assert rules(*SENT, *back, final(b"a", b"b", b"c")) == set()


def test_send_with_several_attempts_counts_the_acknowledged_one() -> None:
    retried = [send(b"a", -1, 1, "? no answer"), send(b"a", 0, 2), send(b"a", -1, 3, "? LATE")]
    assert rules(*retried, final(b"b")) >= {"H9"}
    refused = [send(b"a", -1, 1, "? no answer"), send(b"a", -1, 2, "NOT_ENOUGH_REPLICAS")]
    assert rules(*refused, final(b"a")) == set(), "the first attempt may be there"


def test_acks_of_the_leader_alone_promise_nothing() -> None:
    assert rules(send(b"a", 0, 1, acks=1), send(b"b", 0, 2), final(b"b")) == set()


def test_lag_of_deleted_and_waived_topics_is_not_reported() -> None:
    assert rules(*SENT) == set()
    assert rules(*SENT, final(b"a"), without=frozenset({"t"})) == set()


def test_swarm_calls_this_judge() -> None:
    found = [Finding("H3 lost-write", BROKEN, 1, "lost", ["this one"])]
    with mock.patch.object(histories, "broken_rules", lambda saw, without: saw and found):
        outcome = run(replace(draw_schedule(QUICK), events=(), quiet_from_ms=1000))
    assert outcome.broken is not None and outcome.broken.code == "H3"
    assert any(one.what == "final" and one.values for one in outcome.history)
