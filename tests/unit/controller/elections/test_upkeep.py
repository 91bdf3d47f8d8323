"""Elections without a request: preferred leaders, and unclean ones once they are allowed."""

from __future__ import annotations

import pytest

from controller.decision import Decide, Decision
from controller.elections import upkeep
from controller.elections.upkeep import Rebalance, decide_rebalance, decide_unclean_elections
from metalog.image.values import NO_LEADER, ConfigResourceType, ElectedAs, LeaderRecoveryState
from protocol.metadata import ConfigRecord, PartitionChangeRecord
from testkit.memory.controller import Cluster


def cluster_with_leaders_away() -> Cluster:
    """Return a cluster: broker 1 was down and is back in every ISR; others lead its partitions."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3], [1, 3, 2], [2, 3, 1])
    cluster.fence(1)
    cluster.heartbeat(1)
    return cluster


def back_in_sync(cluster: Cluster, index: int) -> None:
    partition = cluster.partition("t", index)
    cluster.apply(
        [
            PartitionChangeRecord(
                topic_id=cluster.image.topics.by_name["t"].id,
                partition_id=index,
                isr=sorted({*partition.isr, 1}),
            )
        ]
    )


def records_of(cluster: Cluster, decide: Decide[object]) -> list[PartitionChangeRecord]:
    decision = decide(cluster.view())
    assert isinstance(decision, Decision)
    cluster.run(decide)
    return [r for r in decision.records if isinstance(r, PartitionChangeRecord)]


def turn(cluster: Cluster, rebalance: Rebalance) -> bool:
    """Apply one turn and return whether more partitions are left to check."""
    decision = rebalance(cluster.view())
    cluster.apply(decision.records)
    return decision.reply


def test_preferred_leaders_get_their_partitions_back_once_in_sync() -> None:
    cluster = cluster_with_leaders_away()
    assert records_of(cluster, decide_rebalance) == []
    back_in_sync(cluster, 0)
    (record,) = records_of(cluster, decide_rebalance)
    assert (record.partition_id, record.leader) == (0, 1)
    assert record.election_kind == ElectedAs.PREFERRED
    assert record.election_cause == "preferred-rebalance"
    assert cluster.partition("t", 0).leader == 1
    assert cluster.partition("t", 1).leader == 3, "1 is not in sync there"
    assert records_of(cluster, decide_rebalance) == []


def test_a_broker_on_its_way_out_gets_nothing() -> None:
    cluster = cluster_with_leaders_away()
    cluster.heartbeat(1)
    back_in_sync(cluster, 0)
    back_in_sync(cluster, 2)
    cluster.fence(1)
    assert records_of(cluster, decide_rebalance) == []


def test_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PREFERRED_PER_TURN", 1)
    cluster = cluster_with_leaders_away()
    back_in_sync(cluster, 0)
    back_in_sync(cluster, 1)
    rebalance = Rebalance()
    assert [turn(cluster, rebalance) for _ in range(3)] == [True, True, False]
    assert [cluster.partition("t", i).leader for i in (0, 1, 2)] == [1, 1, 2]


def test_rebalance_scan_continues_and_restarts_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "LOOKS_PER_TURN", 2)
    cluster = cluster_with_leaders_away()
    rebalance = Rebalance()
    assert turn(cluster, rebalance), "two are looked at, and one is left"
    back_in_sync(cluster, 0)
    back_in_sync(cluster, 1)
    assert not turn(cluster, rebalance), "of the others none is to be moved"
    assert cluster.partition("t", 0).leader == 2
    assert [turn(cluster, rebalance), turn(cluster, rebalance)] == [True, False]
    assert [cluster.partition("t", i).leader for i in (0, 1)] == [1, 1]


def leaderless(**properties: str) -> Cluster:
    cluster = Cluster(**properties)
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("u", [1, 2])
    cluster.fence(2)
    cluster.heartbeat(2)
    cluster.fence(1)
    assert cluster.partition("t").leader == cluster.partition("u").leader == NO_LEADER
    return cluster


def allow(cluster: Cluster, resource_type: ConfigResourceType, name: str) -> None:
    cluster.apply(
        [
            ConfigRecord(
                resource_type=resource_type,
                resource_name=name,
                name="unclean.leader.election.enable",
                value="true",
            )
        ]
    )


def test_unclean_election_where_it_becomes_allowed_and_only_there() -> None:
    cluster = leaderless()
    assert records_of(cluster, decide_unclean_elections) == []
    allow(cluster, ConfigResourceType.TOPIC, "t")
    (record,) = records_of(cluster, decide_unclean_elections)
    assert record.election_kind == ElectedAs.UNCLEAN
    assert record.election_cause == "unclean-config"
    p = cluster.partition("t")
    assert (p.leader, p.isr, p.recovery_state) == (2, (2,), LeaderRecoveryState.RECOVERING)
    assert cluster.partition("u").leader == NO_LEADER


def test_unclean_election_by_the_clusters_default() -> None:
    cluster = leaderless()
    allow(cluster, ConfigResourceType.BROKER, "")
    assert len(records_of(cluster, decide_unclean_elections)) == 2


def test_unclean_election_without_a_live_replica_writes_no_records() -> None:
    cluster = leaderless()
    cluster.fence(2)
    allow(cluster, ConfigResourceType.TOPIC, "t")
    assert records_of(cluster, decide_unclean_elections) == []
