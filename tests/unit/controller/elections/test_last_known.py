"""The last known leader: elected, and visible as such, only if ISR and ELR are empty."""

from __future__ import annotations

import pytest

from controller.elections.upkeep import decide_unclean_elections
from controller.writer.stats import last_known_leaders
from metalog.image.values import ElectedAs, LeaderRecoveryState
from protocol.metadata import ConfigRecord, PartitionChangeRecord
from testkit.memory.controller import SESSION_TIMEOUT_MS, Cluster

TOPIC = 2


def leaderless(**properties: str) -> Cluster:
    """Return a cluster whose broker 1 led alone and comes back without its unflushed records."""
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


def test_last_known_leader_is_elected_uncleanly() -> None:
    cluster = leaderless()
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.recovery_state == LeaderRecoveryState.RECOVERING


def test_last_known_leader_is_elected_when_the_strategy_permits_it() -> None:
    """A change of the strategy takes effect at once, not with the broker's next return."""
    cluster = leaderless(**{"unclean.recovery.strategy": "None"})
    cluster.heartbeat(1)
    cluster.run(decide_unclean_elections)
    assert cluster.partition("t").leader == -1
    cluster.apply(
        [
            ConfigRecord(
                resource_type=TOPIC,
                resource_name="t",
                name="unclean.recovery.strategy",
                value="Balanced",
            )
        ]
    )
    cluster.run(decide_unclean_elections)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())


def test_partition_has_no_leader_while_the_last_known_one_is_fenced() -> None:
    """Bug 12 (KAFKA-19522): while the last known leader is fenced, no other replica leads."""
    cluster = leaderless()
    cluster.register(2, life=2)
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.last_known_elr) == (-1, (1,))


@pytest.mark.parametrize("min_isr", ["1", "2", "3"])
def test_brokers_that_ended_together_leave_one_who_may_lead(min_isr: str) -> None:
    """A power cut of all brokers elects no leader while the ISR still has min ISR.

    The controller fences the brokers one by one, and the next one gets no leadership in between.
    """
    cluster = Cluster(elr=True)
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3], **{"min.insync.replicas": min_isr})
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    fenced = cluster.fence_expired()
    assert sorted(fenced) == [1, 2, 3]
    for broker_id in (1, 2, 3):
        cluster.register(broker_id, life=2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), ())
    # With min ISR 3 the first broker fenced takes the ISR below it; it was the leader.
    last_known = fenced[0] if min_isr == "3" else fenced[-1]
    assert partition.last_known_elr == (last_known,)
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id)
    assert cluster.partition("t").leader == last_known


def test_an_operator_may_refuse_it() -> None:
    cluster = leaderless(kraftbox_last_known_leader_election_enable="false")
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (-1, (), (1,))


@pytest.mark.parametrize("of_the_topic", [False, True])
def test_strategy_none_refuses_it(of_the_topic: bool) -> None:
    """KIP-966: with strategy None only an operator elects the last known leader."""
    if of_the_topic:
        cluster = leaderless()
        key = "unclean.recovery.strategy"
        config = ConfigRecord(resource_type=TOPIC, resource_name="t", name=key, value="None")
        cluster.apply([config])
    else:
        cluster = leaderless(unclean_recovery_strategy="None")
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == -1


def test_last_known_leaders_selects_only_elections_of_that_kind() -> None:
    changes = [PartitionChangeRecord(leader=1, election_kind=kind) for kind in ElectedAs]
    assert last_known_leaders(changes) == [changes[ElectedAs.LAST_KNOWN_LEADER]]
