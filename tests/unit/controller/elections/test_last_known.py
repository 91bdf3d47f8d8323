"""The last known leader: elected where nobody else is left, visibly, or not at all."""

from __future__ import annotations

import pytest

from controller.configs import topic_settings
from controller.configs.topic_settings import RecoveryStrategy
from controller.elections import context
from controller.writer.stats import last_known_leaders
from metalog.image.values import ElectedAs, LeaderRecoveryState
from protocol.metadata import PartitionChangeRecord
from testkit.memory.controller import Cluster

KEY = "kraftbox.last.known.leader.election.enable"


def leaderless(**properties: str) -> Cluster:
    """Broker 1 led alone and comes back without what it had not flushed."""
    cluster = Cluster(elr=True, **properties)
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    cluster.register(1, life=2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), ())
    assert partition.last_known_elr == (1,)
    return cluster


def test_it_leads_uncleanly() -> None:
    cluster = leaderless()
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.recovery_state == LeaderRecoveryState.RECOVERING


def test_while_it_is_fenced_nobody_does() -> None:
    """Bug 12: KAFKA-19522."""
    cluster = leaderless()
    cluster.register(2, life=2)
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.last_known_elr) == (-1, (1,))


def test_an_operator_may_refuse_it() -> None:
    cluster = leaderless(kraftbox_last_known_leader_election_enable="false")
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (-1, (), (1,))


def test_strategy_none_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert context.recovery_strategy is topic_settings.recovery_strategy
    monkeypatch.setattr(context, "recovery_strategy", lambda *_: RecoveryStrategy.NONE)
    cluster = leaderless()
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == -1


def test_it_is_told_from_the_others() -> None:
    changes = [PartitionChangeRecord(leader=1, election_kind=kind) for kind in ElectedAs]
    assert last_known_leaders(changes) == [changes[ElectedAs.LAST_KNOWN_LEADER]]
