"""Explanations of a partition's leadership: eligible candidates, reasons, and pending waits.

It uses the same rules as elections: eligibility, election order, strategy. So its statement about a
candidate is what an election would find now. The recovery provides what the partition waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from controller.configs.topic_settings import (
    RecoveryStrategy,
    StrategyInForce,
    recovery_manager_enabled,
    strategy_in_force,
)
from controller.decision import ControllerView
from controller.elections.context import ElectionContext
from controller.elections.eligibility import Ineligible
from controller.elections.local_logs import LocalLogOrder
from controller.elections.log_facts import LogFact, LogFacts, Replica
from controller.elections.recovery_rules import WaitsFor
from controller.elections.recovery_waiting import Waiting
from metalog.image.local_log import (
    OFF,
    UNKNOWN,
    LocalLogStats,
    LocalLogThresholds,
    LocalLogVerdict,
    judge,
)
from metalog.image.values import PartitionImage, TopicImage

MAY_LACK = "may lack committed records: it is in neither ISR nor ELR"
UNHEARD = "has not said how far its log reaches"


class Answer(NamedTuple):
    """A broker's answer about its log: epoch of the last batch, log end, and age of the answer."""

    last_epoch: int
    end_offset: int
    age_ms: int


class LocalLog(NamedTuple):
    """The verdict about a replica's local log, and its data (KIP-1303).

    stats: unknown values are -1. age_ms: time since the report, -1 if unknown.
    """

    verdict: LocalLogVerdict
    stats: LocalLogStats
    age_ms: int


class Candidate(NamedTuple):
    """A replica in an election.

    sets: those of `isr`, `elr` and `last_known_elr` that contain the broker. reason: completes the
    sentence "broker N ..."; None if it may lead. local_log: None if the topic has no threshold.
    """

    broker_id: int
    sets: tuple[str, ...]
    eligible: bool
    reason: str | None
    answer: Answer | None
    local_log: LocalLog | None


class Explanation(NamedTuple):
    """Why a partition has its leader, or none.

    managed: whether logs are compared before a replica that may lack records leads. waiting: None
    if the partition waits for nothing. since_ms: begin of the wait in ms since 1970. candidates: in
    election order.
    """

    partition: PartitionImage
    strategy: StrategyInForce
    managed: bool
    waiting: Waiting | None
    since_ms: int | None
    candidates: tuple[Candidate, ...]
    thresholds: LocalLogThresholds


def explain_partition(
    elections: ElectionContext,
    topic: TopicImage,
    index: int,
    facts: LogFacts,
    waiting: Waiting | None,
) -> Explanation:
    """Explain a partition, which must exist. `waiting` is the recovery's state for it."""
    view = elections.view
    partition = topic.partitions[index]
    eligibility_of = elections.eligibility_in(topic, index, partition)
    strategy = strategy_in_force(view, topic.name)
    managed = recovery_manager_enabled(view)
    order = elections.rules(topic).local_logs
    answers = _answers(elections, topic, index, partition, facts)

    def reason_against(broker_id: int) -> str | None:
        eligibility = eligibility_of(broker_id)
        if isinstance(eligibility, Ineligible):
            return str(eligibility)
        if broker_id in (partition.leader, *partition.isr, *partition.elr):
            return None
        if waiting is not None and waiting.waits is WaitsFor.ANSWERS:
            fact = answers.get(broker_id)
            counts = fact is not None and fact.leader_epoch == partition.leader_epoch
            return None if counts else UNHEARD
        if strategy.strategy is RecoveryStrategy.AGGRESSIVE and not managed:
            return None
        return MAY_LACK

    def candidate(broker_id: int) -> Candidate:
        reason = reason_against(broker_id)
        answer = None
        if (fact := answers.get(broker_id)) is not None:
            age_ms = max(0, int(view.monotonic_ms - fact.heard_ms))
            answer = Answer(fact.last_epoch, fact.end_offset, age_ms)
        return Candidate(
            broker_id,
            _sets(partition, broker_id),
            reason is None,
            reason,
            answer,
            _local_log(view, order, partition, broker_id),
        )

    since_ms = None
    if waiting is not None:
        since_ms = view.now_ms - max(0, int(view.monotonic_ms - waiting.since_ms))
    return Explanation(
        partition=partition,
        strategy=strategy,
        managed=managed,
        waiting=waiting,
        since_ms=since_ms,
        candidates=tuple(map(candidate, elections.candidates(topic, index, partition))),
        thresholds=OFF if order is None else order.thresholds,
    )


def _answers(
    elections: ElectionContext,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    facts: LogFacts,
) -> Mapping[int, LogFact]:
    """Return the answers of brokers in their current incarnation."""
    brokers = elections.view.image.cluster.brokers
    found = {}
    for broker_id in partition.replicas:
        broker = brokers.get(broker_id)
        fact = None
        if broker is not None:
            fact = facts.of(Replica(topic.id, index, broker_id), broker.epoch)
        if fact is not None:
            found[broker_id] = fact
    return found


def _local_log(
    view: ControllerView, order: LocalLogOrder | None, partition: PartitionImage, broker_id: int
) -> LocalLog | None:
    if order is None:
        return None
    known = order.known(partition.local_logs, broker_id)
    verdict = judge(known.stats, order.thresholds, view.now_ms)
    told_ms = known.reported_ms
    return LocalLog(verdict, known.stats, UNKNOWN if told_ms < 0 else max(0, view.now_ms - told_ms))


def _sets(partition: PartitionImage, broker_id: int) -> tuple[str, ...]:
    named = {
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
    }
    return tuple(name for name, members in named.items() if broker_id in members)
