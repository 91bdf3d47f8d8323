"""Explanation of a partition's leadership: who may lead, who may not and why, what is waited for.

It asks the same rules that elect: eligibility, election order, strategy, recovery. So what it says
of a candidate is what an election would find now.
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
from controller.elections.context import ElectionContext
from controller.elections.eligibility import Ineligible, is_eligible
from controller.elections.elr import effective_min_isr
from controller.elections.log_facts import LogFact, LogFacts, Replica
from controller.elections.recovery_rules import (
    Standing,
    Verdict,
    WaitsFor,
    judge,
    without_recovery,
)
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage

MAY_LACK = "may lack committed records: it is in neither ISR nor ELR"
UNHEARD = "has not said how far its log reaches"


class Answer(NamedTuple):
    """What a broker said of its log: the epoch of the last batch, the log end, how long ago."""

    last_epoch: int
    end_offset: int
    age_ms: int


class Candidate(NamedTuple):
    """`sets` are those of `isr`, `elr` and `last_known_elr` that have the broker. `reason`
    completes the sentence "broker N ..."; None for one that may lead."""

    broker_id: int
    sets: tuple[str, ...]
    eligible: bool
    reason: str | None
    answer: Answer | None


class Explanation(NamedTuple):
    """`waits` is None where nothing is waited for; `waits_for` are the brokers. `since_ms` is when
    the partition lost its leader, in ms since 1970. `candidates` are in election order."""

    partition: PartitionImage
    strategy: StrategyInForce
    manager: bool
    waits: WaitsFor | None
    waits_for: tuple[int, ...]
    since_ms: int | None
    candidates: tuple[Candidate, ...]


def explain_partition(
    elections: ElectionContext,
    topic: TopicImage,
    index: int,
    facts: LogFacts,
    *,
    since_ms: int | None,
    overdue: bool = False,
) -> Explanation:
    """The partition must exist. `overdue`: its recovery has asked for longer than the timeout."""
    view = elections.view
    partition = topic.partitions[index]
    eligibility_of = elections.eligibility_in(topic, index, partition)
    safety = elections.rules(topic).safety
    strategy = strategy_in_force(view, topic.name)
    # Unclean recovery compares logs only where the ELR says who is sure to have everything.
    manager = recovery_manager_enabled(view)
    standing = Standing(
        replicas=partition.replicas,
        alive=tuple(r for r in partition.replicas if is_eligible(eligibility_of(r))),
        isr=partition.isr,
        elr=partition.elr,
        last_known=partition.last_known_elr,
        min_isr=effective_min_isr(safety.min_isr, len(partition.replicas)),
    )
    heard = _heard(elections, topic, index, partition, facts)
    counted = {r: fact for r, fact in heard.items() if fact.leader_epoch == partition.leader_epoch}
    verdict = Verdict(None)
    if partition.leader == NO_LEADER:
        verdict = (
            judge(strategy.strategy, standing, counted, overdue=overdue)
            if manager
            else without_recovery(strategy.strategy, standing)
        )
        if verdict.waits is WaitsFor.LAST_KNOWN and not manager and not safety.last_known_electable:
            verdict = Verdict(None, WaitsFor.OPERATOR)
    now_ms = view.monotonic_ms

    def candidate(broker_id: int) -> Candidate:
        eligibility = eligibility_of(broker_id)
        reason: str | None = None
        if isinstance(eligibility, Ineligible):
            reason = str(eligibility)
        elif broker_id not in (partition.leader, *standing.clean):
            reason = _unclean_reason(
                broker_id, strategy.strategy, standing, counted, verdict, manager=manager
            )
        fact = heard.get(broker_id)
        return Candidate(
            broker_id,
            _sets(partition, broker_id),
            reason is None,
            reason,
            None
            if fact is None
            else Answer(fact.last_epoch, fact.end_offset, max(0, int(now_ms - fact.heard_ms))),
        )

    return Explanation(
        partition=partition,
        strategy=strategy,
        manager=manager,
        waits=verdict.waits,
        waits_for=verdict.brokers,
        since_ms=since_ms if partition.leader == NO_LEADER else None,
        candidates=tuple(map(candidate, elections.candidates(topic, index, partition))),
    )


def _heard(
    elections: ElectionContext,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    facts: LogFacts,
) -> Mapping[int, LogFact]:
    """What brokers said in their lives of now."""
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


def _sets(partition: PartitionImage, broker_id: int) -> tuple[str, ...]:
    named = {
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
    }
    return tuple(name for name, members in named.items() if broker_id in members)


def _unclean_reason(
    broker_id: int,
    strategy: RecoveryStrategy,
    standing: Standing,
    counted: Mapping[int, LogFact],
    verdict: Verdict,
    *,
    manager: bool,
) -> str | None:
    """Why a live replica outside of ISR and ELR may not lead now; None if it may."""
    compared = manager and verdict.waits in (None, WaitsFor.ANSWERS)
    if strategy is RecoveryStrategy.NONE or (
        strategy is RecoveryStrategy.BALANCED and standing.clean
    ):
        return MAY_LACK
    if manager:
        if not compared:
            return MAY_LACK
        return None if broker_id in counted else UNHEARD
    if strategy is RecoveryStrategy.AGGRESSIVE or broker_id in verdict.brokers:
        return None
    return MAY_LACK
