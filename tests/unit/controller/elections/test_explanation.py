"""Explanations of a partition: its candidates, reasons against the others, and its pending
condition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.apis.explain_election import explained
from controller.configs.topic_settings import LOCAL_LOG_MS
from controller.elections.context import ElectionContext
from controller.elections.explanation import (
    MAY_LACK,
    UNHEARD,
    Answer,
    Explanation,
    LocalLog,
    explain_partition,
)
from controller.elections.log_facts import LogFact, LogFacts, Replica
from controller.elections.recovery_rules import WaitsFor
from controller.elections.recovery_waiting import Waiting
from kraftbox.cli.explanation import document, headlines
from kraftbox.cli.replica_logs import Replicas
from metalog.image.local_log import (
    LocalLogStats,
    LocalLogTable,
    LocalLogThresholds,
    LocalLogVerdict,
)
from metalog.image.snapshot import local_log_entries
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages.explain_election import (
    PARTITIONS_PER_REQUEST_MAX,
    ExplainElectionRequest,
    ExplainElectionResponse,
)
from protocol.metadata import ConfigRecord, PartitionChangeRecord, UnregisterBrokerRecord
from testkit.memory.controller import Cluster

TOPIC, BROKER = 2, 4


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster with topic t on brokers 1, 2, 3, led by 1."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3])
    return cluster


def state(cluster: Cluster, **fields: Any) -> None:
    topic = cluster.image.topics.by_name["t"]
    cluster.apply([PartitionChangeRecord(partition_id=0, topic_id=topic.id, **fields)])


def configure(cluster: Cluster, key: str, value: str, kind: int = TOPIC, name: str = "t") -> None:
    record = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    cluster.apply([record])


def explain(
    cluster: Cluster, waiting: Waiting | None = None, facts: LogFacts | None = None
) -> Explanation:
    topic = cluster.image.topics.by_name["t"]
    elections = ElectionContext(cluster.view())
    return explain_partition(elections, topic, 0, facts or LogFacts(), waiting)


def reasons(explanation: Explanation) -> list[tuple[int, str | None]]:
    assert all(one.eligible == (one.reason is None) for one in explanation.candidates)
    return [(one.broker_id, one.reason) for one in explanation.candidates]


def test_a_partition_with_a_leader_waits_for_nothing(cluster: Cluster) -> None:
    state(cluster, isr=[1, 2], eligible_leader_replicas=[])
    found = explain(cluster)
    assert (found.waiting, found.since_ms) == (None, None)
    assert reasons(found) == [(1, None), (2, None), (3, MAY_LACK)]
    assert [one.sets for one in found.candidates] == [("isr",), ("isr",), ()]


def test_explanation_omits_the_answer_of_an_unregistered_broker(cluster: Cluster) -> None:
    facts, topic = LogFacts(), cluster.image.topics.by_name["t"]
    epoch = cluster.image.cluster.brokers[3].epoch
    facts.learn(Replica(topic.id, 0, 3), epoch, LogFact(0, 5, 0, 0.0))
    assert explain(cluster, facts=facts).candidates[2].answer is not None
    cluster.apply([UnregisterBrokerRecord(broker_id=3, broker_epoch=epoch)])
    gone = explain(cluster, facts=facts).candidates[2]
    assert (gone.reason, gone.answer) == ("is not registered", None)


def test_explanation_names_the_source_of_the_recovery_strategy(cluster: Cluster) -> None:
    def told() -> tuple[str, str, str]:
        strategy = explain(cluster).strategy
        return strategy.strategy.value, strategy.key, strategy.source.value

    flag, key = "unclean.leader.election.enable", "unclean.recovery.strategy"
    assert told() == ("Balanced", flag, "this controller's properties file or the default")
    configure(cluster, flag, "true", BROKER, "")
    assert told() == ("Aggressive", flag, "the cluster, dynamic")
    configure(cluster, key, "None")
    assert told() == ("None", key, "the topic")


def test_without_a_leader_the_reasons_are_those_of_an_election(cluster: Cluster) -> None:
    cluster.fence(1)
    cluster.fence(2)
    state(cluster, leader=-1, isr=[], eligible_leader_replicas=[2, 1])
    view = cluster.view()
    waiting = Waiting(WaitsFor.CLEAN_CANDIDATE, (1, 2), view.monotonic_ms - 300)
    found = explain(cluster, waiting)
    assert (found.waiting, found.since_ms) == (waiting, view.now_ms - 300)
    assert reasons(found) == [(1, "is fenced"), (2, "is fenced"), (3, MAY_LACK)]
    assert [one.sets for one in found.candidates] == [("elr",), ("elr",), ()]
    configure(cluster, "unclean.recovery.strategy", "Aggressive")
    assert reasons(explain(cluster)) == [(1, "is fenced"), (2, "is fenced"), (3, None)]
    configure(cluster, "unclean.recovery.manager.enabled", "true", BROKER, "")
    assert reasons(explain(cluster)) == [(1, "is fenced"), (2, "is fenced"), (3, MAY_LACK)]


def test_explanation_uses_answers_of_the_current_broker_epoch(cluster: Cluster) -> None:
    state(cluster, leader=-1, isr=[], last_known_elr=[1, 2])
    topic = cluster.image.topics.by_name["t"]
    epoch = topic.partitions[0].leader_epoch
    view = cluster.view()
    facts = LogFacts()
    for broker_id, leader_epoch, life in ((1, epoch, 0), (2, epoch - 1, 0), (3, epoch, -1)):
        broker_epoch = view.image.cluster.brokers[broker_id].epoch + life
        fact = LogFact(4, 100 + broker_id, leader_epoch, view.monotonic_ms - 250.0)
        facts.learn(Replica(topic.id, 0, broker_id), broker_epoch, fact)
    waiting = Waiting(WaitsFor.ANSWERS, (2, 3), view.monotonic_ms)
    found = explain(cluster, waiting, facts)
    # 2 has not applied the last change, and 3 answered in an earlier incarnation.
    assert reasons(found) == [(1, None), (2, UNHEARD), (3, UNHEARD)]
    assert [one.answer for one in found.candidates] == [
        Answer(4, 101, 250),
        Answer(4, 102, 250),
        None,
    ]


def test_each_partition_is_answered_up_to_the_limit(cluster: Cluster) -> None:
    indexes = [0, 1, *range(PARTITIONS_PER_REQUEST_MAX - 1)]
    topics = [
        ExplainElectionRequest.Topic(name="none", partitions=[0]),
        ExplainElectionRequest.Topic(name="t", partitions=indexes),
    ]
    request = ExplainElectionRequest(topics=topics)
    waiting = Waiting(WaitsFor.OPERATOR, (), cluster.view().monotonic_ms)
    recovery: Any = SimpleNamespace(facts=LogFacts(), waits_for=lambda *_: waiting)
    found = explained(cluster.view(), request, recovery)
    assert [(one.topic, one.partition) for one in found] == [
        ("none", 0),
        *(("t", index) for index in indexes),
    ]
    codes = [one.error_code for one in found]
    assert codes[:3] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert codes[PARTITIONS_PER_REQUEST_MAX:] == [ErrorCode.REQUEST_LIMIT_REACHED] * 2
    assert codes[PARTITIONS_PER_REQUEST_MAX - 1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found[1].leader, found[1].strategy, found[1].waits) == (1, "Balanced", "operator")


def test_explanation_includes_local_logs_only_with_a_threshold(cluster: Cluster) -> None:
    brokers, now_ms = cluster.image.cluster.brokers, cluster.now_ms
    table = LocalLogTable.of(
        [
            ((1, brokers[1].epoch), now_ms - 100, 70, now_ms - 40),
            ((2, brokers[2].epoch - 1), now_ms - 100, 70, now_ms),
        ]
    )
    state(cluster, local_logs=local_log_entries(PartitionChangeRecord, table))
    assert [one.local_log for one in explain(cluster).candidates] == [None] * 3
    configure(cluster, LOCAL_LOG_MS, "101")
    found = explain(cluster)
    assert found.thresholds == LocalLogThresholds(101, -1)
    nothing = LocalLog(LocalLogVerdict.UNKNOWN, LocalLogStats(), -1)
    assert [(one.broker_id, one.local_log) for one in found.candidates] == [
        (2, nothing),
        (3, nothing),
        (1, LocalLog(LocalLogVerdict.TOO_LITTLE, table.entries[0].stats, 40)),
    ]
    recovery: Any = SimpleNamespace(facts=LogFacts(), waits_for=lambda *_: None)
    request = ExplainElectionRequest(
        topics=[ExplainElectionRequest.Topic(name="t", partitions=[0])]
    )
    (told,) = explained(cluster.view(), request, recovery)
    data = encode(ExplainElectionResponse(partitions=[told]), 0)
    sent, _ = decode(ExplainElectionResponse, data, 0)
    said = document(sent.partitions[0])
    assert (said["local_log_ms"], said["local_log_bytes"]) == (101, -1)
    assert [one["local_log"] for one in said["candidates"]][1:] == [
        {"enough": True, "reason": "is unknown", "start_ms": None, "bytes": None, "age_ms": None},
        {
            "enough": False,
            "reason": "is too small",
            "start_ms": now_ms - 100,
            "bytes": 70,
            "age_ms": 40,
        },
    ]
    lines = headlines(sent.partitions[0], Replicas((1, 2, 3), {}), ())
    assert "preferred leaders hold at least this much locally (KIP-1303): 101 ms" in lines
