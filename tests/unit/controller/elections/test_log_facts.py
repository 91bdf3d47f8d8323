"""P21: a broker's answer about its logs counts for the incarnation that sent it."""

from __future__ import annotations

import pytest

from controller.brokers.registration import decide_unregister_broker
from controller.elections.log_facts import LogFact, LogFacts, Replica
from controller.topics.change import TopicKey, decide_delete_topics
from testkit.memory.controller import Cluster

SHORT = LogFact(last_epoch=3, end_offset=10, leader_epoch=5, heard_ms=100.0)
LONG = LogFact(last_epoch=4, end_offset=20, leader_epoch=5, heard_ms=200.0)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2], [2, 1])
    return cluster


def replica(cluster: Cluster, broker_id: int, index: int = 0) -> Replica:
    return Replica(cluster.image.topics.by_name["t"].id, index, broker_id)


def epoch(cluster: Cluster, broker_id: int) -> int:
    return cluster.image.cluster.brokers[broker_id].epoch


def test_log_facts_return_only_facts_of_the_given_broker_epoch(cluster: Cluster) -> None:
    facts, one = LogFacts(), replica(cluster, 1)
    facts.learn(one, 7, SHORT)
    assert facts.of(one, 7) == SHORT
    assert facts.of(one, 6) is facts.of(one, 8) is None
    assert facts.of(replica(cluster, 2), 7) is None
    assert facts.of(replica(cluster, 1, 1), 7) is None


def test_the_newest_counts_in_whatever_order_they_come() -> None:
    one = Replica(b"t" * 16, 0, 1)
    for order in ((SHORT, LONG), (LONG, SHORT)):
        facts = LogFacts()
        for fact in order:
            facts.learn(one, 7, fact)
        assert facts.of(one, 7) == LONG
    # a late answer of the incarnation before does not replace one of this incarnation
    facts = LogFacts()
    facts.learn(one, 8, SHORT)
    facts.learn(one, 7, LONG)
    assert facts.of(one, 8) == SHORT


def test_log_facts_drop_entries_of_ended_broker_epochs_and_deleted_topics(cluster: Cluster) -> None:
    facts = LogFacts()
    cluster.create_topic("u", [1, 2])
    other = Replica(cluster.image.topics.by_name["u"].id, 0, 1)
    for one in (replica(cluster, 1), replica(cluster, 2), replica(cluster, 2, 1), other):
        facts.learn(one, epoch(cluster, one.broker_id), SHORT)
    not_there = (replica(cluster, 3), replica(cluster, 1, 9))
    for one in not_there:
        facts.learn(one, epoch(cluster, one.broker_id), SHORT)
    facts.follow(cluster.image)
    assert len(facts) == 4
    cluster.fence(1)
    facts.follow(cluster.image)
    assert len(facts) == 4, "fenced is still the same life"
    cluster.register(1, life=2)
    facts.follow(cluster.image)
    assert len(facts) == 2
    cluster.run(lambda view: decide_delete_topics(view, [TopicKey("u")]))
    cluster.fence(2)
    cluster.run(lambda view: decide_unregister_broker(view, 2))
    facts.learn(other, epoch(cluster, 1), SHORT)
    facts.follow(cluster.image)
    assert len(facts) == 0
    facts.learn(other, 1, SHORT)
    facts.clear()
    assert len(facts) == 0
