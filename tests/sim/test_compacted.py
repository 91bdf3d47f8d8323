"""Compacted topics in the swarm: the cleaner runs, and a judge checks the records that it
removes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from simulation.event import Event
from simulation.judges.compacted import CompactedLedger, Keyed, KeyTable, problem_between
from simulation.schedule import Schedule, draw_schedule
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.swarm import run
from simulation.world.invariants import Violation
from storage.log.cleaning.cleaner import LogCleaner
from storage.log.cleaning.key_offsets import KeyOffsets
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

A, B = Keyed(b"a", b"1"), Keyed(b"b", b"2")
NEWER, DELETED = Keyed(b"a", b"3"), Keyed(b"a", None)


def table(*records: Keyed) -> KeyTable:
    made = KeyTable()
    for offset, record in enumerate(records):
        made.add(offset, record)
    return made


@pytest.mark.parametrize(
    ("found", "is_fine"),
    [
        ({0: A, 1: B, 2: NEWER}, True),
        ({1: B, 2: NEWER}, True),
        ({0: A, 2: NEWER}, False),
        ({0: A, 1: B}, False),
        ({1: NEWER, 2: NEWER}, False),
    ],
)
def test_only_replaced_records_may_be_removed(found: dict[int, Keyed], is_fine: bool) -> None:
    assert (table(A, B, NEWER).problem(found, 0, 3) is None) is is_fine


def test_deletion_may_be_removed_after_the_record_that_it_deletes() -> None:
    made = table(A, B, DELETED)
    assert made.problem({1: B}, 0, 3) is None and made.revived({1: B}) is None
    assert made.revived({0: A, 1: B}) is not None


def test_a_deletion_that_a_log_never_held_may_be_gone_with_what_it_deletes_there() -> None:
    """The broker was away for longer than tombstones are kept: nothing is promised then."""
    made = table(A, B, DELETED)
    made.holds(1, {0: A, 1: B, 2: DELETED})
    made.holds(2, {0: A, 1: B})
    assert made.revived({0: A, 1: B}, 1) is not None and not made.undead
    assert made.revived({0: A, 1: B}, 2) is None and made.undead == {b"a"}


def test_a_log_that_was_cut_below_a_deletion_has_not_held_it() -> None:
    made = table(A, B, DELETED)
    made.holds(1, {0: A, 1: B, 2: DELETED})
    made.ends(1, 3)
    assert made.revived({0: A, 1: B}, 1) is not None
    made.ends(1, 2)
    assert made.revived({0: A, 1: B}, 1) is None


@pytest.mark.parametrize(
    ("other", "is_fine"),
    [
        ({0: A, 1: B, 2: NEWER}, True),
        ({1: B, 2: NEWER}, True),
        ({1: B, 2: NEWER, 3: DELETED}, True),
        ({0: A, 1: B}, False),
        ({2: NEWER}, False),
        ({1: B, 2: A}, False),
        ({0: A, 1: B, 2: NEWER, 3: Keyed(b"c", b"9")}, False),
    ],
)
def test_replicas_cleaned_by_themselves_agree_on_what_must_stay(
    other: dict[int, Keyed], is_fine: bool
) -> None:
    """P4: where the committed end is unknown, a replaced record may be in one replica alone."""
    one = {1: B, 2: NEWER}
    if DELETED in other.values():
        one = {1: B}
    assert (problem_between([one, other], 0, 4) is None) is is_fine
    assert (problem_between([other, one], 0, 4) is None) is is_fine


def test_a_replica_that_has_what_another_knows_to_be_deleted_is_found() -> None:
    assert problem_between([{0: A, 1: B}, {1: B, 2: DELETED}], 0, 3) is not None


def test_record_of_an_expired_deletion_may_be_in_one_replica_alone() -> None:
    """Seed 1947: a broker was away for longer than tombstones are kept."""
    away, cleaned = {0: A, 1: B, 3: NEWER}, {1: B, 3: NEWER}
    table = KeyTable()
    table.see({2: DELETED, 3: NEWER})
    assert problem_between([away, cleaned], 0, 4, table.undead) is None
    assert problem_between([{0: A, 1: B}, {0: A}], 0, 4, table.undead) is not None


def acked(ledger: CompactedLedger, *records: Keyed) -> CompactedLedger:
    ledger.putting(records)
    for offset, put in enumerate(ledger.puts):
        put.offset = offset
    return ledger


def another_record(ledger: CompactedLedger) -> None:
    ledger.was_read(0, B)


def another_place(ledger: CompactedLedger) -> None:
    ledger.was_read(1, A)


def refused(ledger: CompactedLedger) -> None:
    (put,) = ledger.putting([Keyed(b"c", b"9")])
    put.refused = True
    ledger.was_read(3, put.record)


def lost(ledger: CompactedLedger) -> None:
    ledger.read_whole({0: A, 1: B})


def newest_gone(ledger: CompactedLedger) -> None:
    ledger.read_whole({2: NEWER})


@pytest.mark.parametrize(
    ("code", "do"),
    [
        ("H1", another_record),
        ("H2", another_place),
        ("H2", refused),
        ("H3", lost),
        ("H3", newest_gone),
    ],
)
def test_each_rule_finds_its_own(code: str, do: Callable[[CompactedLedger], None]) -> None:
    ledger = acked(CompactedLedger("k", 0), A, B, NEWER)
    ledger.was_read(0, A)
    ledger.read_whole({1: B, 2: NEWER})
    with pytest.raises(Violation, match=f"^{code}:"):
        do(ledger)


def test_clients_find_a_deleted_key_again_only_where_it_may_be() -> None:
    ledger = acked(CompactedLedger("k", 0), A, B, DELETED)
    ledger.read_whole({1: B})
    ledger.read_whole({0: A, 1: B}, {b"a"})
    with pytest.raises(Violation, match="^H3:"):
        ledger.read_whole({0: A, 1: B})
    with pytest.raises(Violation, match="^H3:"):
        ledger.read_whole({0: A}, {b"a", b"b"})


CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2048",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "min.insync.replicas": "2",
}


def compacted(*events: Event) -> Schedule:
    drawn = schedule(*events, quiet_from_ms=5000, **{"log.cleaner.backoff.ms": "100"})
    clients = (ClientShape("key writer", "k", 10.0), ClientShape("key reader", "r", 20.0))
    topics = (TopicShape("k0", 1, 3, CONFIGS), *drawn.shape.topics)
    return replace(
        drawn, shape=replace(drawn.shape, topics=topics, clients=(*drawn.shape.clients, *clients))
    )


def test_the_cleaner_runs_and_takes_nothing_that_is_needed() -> None:
    cleaned: list[float] = []
    finished = LogCleaner._finished

    def note(self: LogCleaner, key: Any, log: Any, done: Any, *more: Any) -> Any:
        cleaned.append(log.log_end_offset)
        return finished(self, key, log, done, *more)

    kill = Event("e", 2000, "kill", "leader of k0-0", {"for_ms": 1000})
    with mock.patch.object(LogCleaner, "_finished", note):
        outcome = run(compacted(kill))
    assert outcome.broken is None, outcome.broken
    assert len(cleaned) > 10, "hardly anything was cleaned"


UPDATE = KeyOffsets.update


def _next_one_is_newest(self: KeyOffsets, pairs: Any) -> None:
    UPDATE(self, [(key, offset + 1) for key, offset in pairs])


def test_a_cleaner_that_takes_the_newest_record_is_found() -> None:
    with mock.patch.object(KeyOffsets, "update", _next_one_is_newest):
        broken = run(compacted()).broken
    assert broken is not None and broken.code in ("P4", "P6", "H3"), broken


def test_seeds_draw_compacted_topics() -> None:
    drawn = [draw_schedule(seed).shape for seed in range(30)]
    assert 5 < sum(bool(one.compacted) for one in drawn) < 25
    assert all(any(c.kind == "key writer" for c in one.clients) for one in drawn if one.compacted)


def test_offset_of_a_waived_topic_may_get_another_record() -> None:
    ledger = acked(CompactedLedger("k", 0), A, B)
    ledger.was_read(0, A)
    ledger.puts[1].offset = 0
    ledger.was_read(0, B, given_up=True)
    assert ledger.read[0] == B
