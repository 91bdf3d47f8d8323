"""The order in which the backlog processes partitions."""

from __future__ import annotations

from broker.replication.replicas.backlog import Backlog
from testkit.memory.replicas import TOPIC


def test_partitions_to_lead_have_their_turn_first() -> None:
    backlog = Backlog()
    backlog.add((TOPIC, 0), urgent=False)
    backlog.add((TOPIC, 1), urgent=False)
    backlog.add((TOPIC, 2), urgent=True)
    backlog.add((TOPIC, 1), urgent=True)
    backlog.add((TOPIC, 2), urgent=False)
    assert [backlog.take()[1] for _ in range(len(backlog))] == [2, 1, 0]
