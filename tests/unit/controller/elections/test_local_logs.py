"""Who has too little locally, as elections ask it: what the rule says, for any table (KIP-1303)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.elections.eligibility import PartitionReplicas
from controller.elections.local_logs import LocalLogOrder
from metalog.image.local_log import (
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
    """Also of earlier lives, and of a broker that is gone."""
    found = []
    for broker_id in (*BROKERS, 9):
        if draw(st.booleans()):
            epoch = EPOCHS.get(broker_id, 5) - draw(st.sampled_from((0, 0, 1)))
            found.append(((broker_id, epoch), draw(times), draw(small), 0))
    return LocalLogTable.of(found)


@given(tables(), thresholds, st.permutations(BROKERS))
def test_it_is_the_rule(
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
