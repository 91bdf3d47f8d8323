"""Partition changes that follow from a change of brokers.

Fencing, unfencing, controlled shutdown, removal and an unclean shutdown differ only in who leaves,
who joins and whose log is doubted; the partitions concerned all go through `change_partition`.
The records that come from here stand in the same atomic batch as the broker's own record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from controller.configs.topic_settings import (
    RecoveryStrategy,
    min_isr_of,
    recovery_strategy,
)
from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.election import Election, Wish
from controller.elections.eligibility import (
    ElectionOrder,
    EligibilityOf,
    assignment_order,
    broker_eligibility,
)
from controller.elections.elr import LastKnownMode
from controller.elections.partition_change import Safety, Target, change_partition
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.schema import MetadataRecord

NONE: frozenset[int] = frozenset()


class BrokerChange(NamedTuple):
    """Brokers that leave the ISRs, that join the electable, and that lost unflushed data.

    `doomed` are fenced by the decisions that follow in the same turn, so they get no leadership
    now. Nothing else may count a silent broker out: if it is heard of again before it is fenced,
    nobody would come back to the partitions it was passed over for.

    With `directories`, leaving brokers leave only the replicas that they have in one of those. What
    else they have there gets a new partition epoch: a leader that has proposed such a replica for
    the ISR meanwhile must not get it in.
    """

    leaving: frozenset[int] = NONE
    joining: frozenset[int] = NONE
    unclean: frozenset[int] = NONE
    doomed: frozenset[int] = NONE
    directories: frozenset[bytes] | None = None


NO_BROKER_CHANGE = BrokerChange()


def eligibility_in(view: ControllerView, change: BrokerChange) -> EligibilityOf:
    """Who may lead, as the view has it once `change` has happened."""
    return broker_eligibility(
        view.image.cluster.brokers,
        leaving=change.leaving,
        joining=change.joining,
        expired=change.doomed,
        unclean=change.unclean,
    )


def election_order(view: ControllerView) -> ElectionOrder:
    """The order in which this cluster tries candidates; the one place that chooses it."""
    return assignment_order


def safety_of(
    view: ControllerView,
    topic: TopicImage,
    *,
    eligibility_of: EligibilityOf,
    unclean_shutdown: frozenset[int],
) -> Safety:
    """The safety inputs of a change to one of `topic`'s partitions, resolved now."""
    return Safety(
        min_isr=min_isr_of(view, topic.name),
        elr_enabled=view.elr_enabled,
        last_known_mode=LastKnownMode.LAST_LEADER,
        strategy=recovery_strategy(view, topic.name),
        last_known_electable=True,
        unclean_shutdown=unclean_shutdown,
        eligibility_of=eligibility_of,
        order=election_order(view),
        now_ms=view.now_ms,
        metadata_version=view.metadata_version,
    )


def records_for_change(
    view: ControllerView, change: BrokerChange, cause: Cause
) -> Iterator[MetadataRecord]:
    """Partition changes that follow from `change`, in the order of topic names and partitions."""
    eligibility_of = eligibility_in(view, change)
    by_name = view.image.topics.by_name
    for name in sorted(by_name):
        topic = by_name[name]
        concerned = [
            (index, partition)
            for index, partition in topic.partitions.items()
            if _concerns(partition, change)
        ]
        if not concerned:
            continue
        safety = safety_of(
            view, topic, eligibility_of=eligibility_of, unclean_shutdown=change.unclean
        )
        kind = election_kind(view, topic.name)
        for index, partition in sorted(concerned):
            partition_change = change_partition(
                partition,
                topic_id=topic.id,
                partition_id=index,
                target=_target(partition, change),
                election=kind,
                cause=cause,
                safety=safety,
                touch=change.directories is not None,
            )
            if partition_change is not None:
                yield partition_change.record


def election_kind(view: ControllerView, topic_name: str) -> Election:
    """An election that nobody asked for may be unclean only where the topic allows it."""
    if recovery_strategy(view, topic_name) is RecoveryStrategy.AGGRESSIVE:
        return Wish.UNCLEAN
    return Wish.ONLINE


def _concerns(partition: PartitionImage, change: BrokerChange) -> bool:
    if change.directories is not None:
        return any(partition.directory_of(b) in change.directories for b in change.leaving)
    if any(b in partition.isr or b in partition.elr for b in change.leaving | change.unclean):
        return True
    return partition.leader == NO_LEADER and any(r in change.joining for r in partition.replicas)


def _target(partition: PartitionImage, change: BrokerChange) -> Target:
    """Leaving brokers leave the ISR; what an unclean one loses, `change_partition` takes away."""
    isr = tuple(r for r in partition.isr if r not in change.leaving)
    return Target(isr=isr if isr != partition.isr else None)
