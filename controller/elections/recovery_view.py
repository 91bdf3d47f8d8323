"""The elections of one partition as they stand, for people who ask why it has no leader."""

from __future__ import annotations

from typing import NamedTuple

from controller.configs.topic_settings import (
    StrategyInForce,
    recovery_manager_enabled,
    strategy_in_force,
)
from controller.decision import ControllerView
from controller.elections.context import ElectionContext
from controller.elections.eligibility import Eligibility
from controller.elections.log_facts import LogFact, LogFacts, Replica
from controller.elections.recovery import UncleanRecovery, Waiting
from metalog.image.values import PartitionImage, TopicImage


class Candidate(NamedTuple):
    """A replica, what is known of it, and the last answer of its broker's life now, if there is
    one. The answer may be about an older leader epoch; then it does not count."""

    broker_id: int
    in_isr: bool
    in_elr: bool
    in_last_known: bool
    eligibility: Eligibility
    answer: LogFact | None


class Explanation(NamedTuple):
    """One partition. `managed`: logs are compared before anybody leads who may lack records.
    `waiting` is None where it has a leader. `candidates` are in election order."""

    partition: PartitionImage
    strategy: StrategyInForce
    managed: bool
    waiting: Waiting | None
    candidates: tuple[Candidate, ...]


def explain(
    view: ControllerView,
    recovery: UncleanRecovery,
    facts: LogFacts,
    topic: TopicImage,
    partition_id: int,
) -> Explanation | None:
    """None if there is no such partition."""
    partition = topic.partitions.get(partition_id)
    if partition is None:
        return None
    elections = ElectionContext(view)
    eligibility_of = elections.eligibility_in(topic, partition_id, partition)
    brokers = view.image.cluster.brokers
    candidates = []
    for replica in elections.candidates(topic, partition_id, partition):
        broker = brokers.get(replica)
        place = Replica(topic.id, partition_id, replica)
        candidates.append(
            Candidate(
                replica,
                replica in partition.isr,
                replica in partition.elr,
                replica in partition.last_known_elr,
                eligibility_of(replica),
                None if broker is None else facts.of(place, broker.epoch),
            )
        )
    return Explanation(
        partition,
        strategy_in_force(view, topic.name),
        recovery_manager_enabled(view),
        recovery.waits_for(topic.id, partition_id),
        tuple(candidates),
    )
