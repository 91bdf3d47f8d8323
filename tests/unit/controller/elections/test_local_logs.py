"""The rule for replicas with too little local log, as elections apply it, for any table
(KIP-1303)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.elections.eligibility import PartitionReplicas
from controller.elections.local_logs import LocalLogOrder, kept, with_report
from metalog.image.local_log import (
    LocalLogStats,
    LocalLogTable,
    LocalLogThresholds,
    judge,
    known_stats,
)
from testkit.memory.controller import Cluster

NOW_MS = 100
small = st.integers(-1, 3)
times = st.integers(NOW_MS - 3, NOW_MS + 3) | st.just(-1)
thresholds = st.builds(LocalLogThresholds, small, small).filter(lambda limits: limits.on)
BROKERS = (1, 2, 3)


def registered() -> Cluster:
    cluster = Cluster()
    cluster.start(*BROKERS)
    return cluster


REGISTERED = registered().image.cluster.brokers
EPOCHS = {b.id: b.epoch for b in REGISTERED.values()}


@st.composite
def tables(draw: st.DrawFn) -> LocalLogTable:
    """Return tables, with rows of earlier incarnations and of a removed broker too."""
    found = []
    for broker_id in (*BROKERS, 9):
        if draw(st.booleans()):
            epoch = EPOCHS.get(broker_id, 5) - draw(st.sampled_from((0, 0, 1)))
            found.append(((broker_id, epoch), draw(times), draw(small), 0))
    return LocalLogTable.of(found)


@given(tables(), thresholds, st.permutations(BROKERS))
def test_local_log_order_puts_replicas_with_enough_first(
    table: LocalLogTable, limits: LocalLogThresholds, assigned: list[int]
) -> None:
    order = LocalLogOrder(limits, REGISTERED)
    enough = {
        broker_id: judge(known_stats(table, broker_id, EPOCHS[broker_id]), limits, NOW_MS).enough
        for broker_id in BROKERS
    }
    assert set(order.at(NOW_MS)(table)) == {b for b in BROKERS if not enough[b]}
    assert all(order.known(table, b).stats == known_stats(table, b, EPOCHS[b]) for b in BROKERS)
    replicas = tuple(assigned)
    place = PartitionReplicas(b"t" * 16, 0, replicas, (b"d" * 16,) * 3, table)
    ordered = order(place, replicas, NOW_MS)
    assert ordered == (
        *(r for r in assigned if enough[r]),
        *(r for r in assigned if not enough[r]),
    )
    assert replicas == tuple(assigned)


HERE, THERE = b"h" * 16, b"t" * 16


def test_kept_row_stays_as_long_as_replica_directory_and_log_are_the_same() -> None:
    """KIP-1303: a replica's row is kept or dropped without any effect on another replica's row."""
    other = ((1, 7), 5, 100, 0)
    for before, after, doubted in product((None, HERE, THERE), (None, HERE, THERE), (0, 1)):
        row = ((2, 9), 6, 200, 1)
        table = LocalLogTable.of([other, row])
        found = kept(
            table,
            {1: HERE} | ({2: before} if before else {}),
            {1: HERE} | ({2: after} if after else {}),
            frozenset({2} if doubted else ()),
        )
        stays = after is not None and before in (None, after) and not doubted
        expected = [other, row] if stays else [other]
        assert found == LocalLogTable.of(expected), (before, after, doubted)


@pytest.mark.parametrize("earlier_life", [False, True])
def test_report_replaces_what_is_known_and_leaves_what_it_does_not_know(
    earlier_life: bool,
) -> None:
    """KIP-1303: an unknown value keeps the known one, but never one of another broker epoch."""
    epoch = 8 if earlier_life else 9
    table = LocalLogTable.of([((1, 7), 1, 10, 0), ((2, epoch), 2, 20, 0)])
    for start_ms, size in product((-1, 0, 5), (-1, 0, 50)):
        told = [(2, 9, LocalLogStats(start_ms, size))]
        found = with_report(table, told, now_ms=3)
        if start_ms == size == -1:
            assert found == table
            continue
        known_start, known_size = (-1, -1) if earlier_life else (2, 20)
        expected = (
            (2, 9),
            known_start if start_ms == -1 else start_ms,
            known_size if size == -1 else size,
            3,
        )
        assert list(found.rows) == [((1, 7), 1, 10, 0), expected], (start_ms, size)
