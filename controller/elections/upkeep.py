"""Elections that the active controller begins by itself.

Preferred leaders get their partitions back (`auto.leader.rebalance.enable`), and partitions without
a leader get one uncleanly where that has become allowed. A turn is bounded: the reply says whether
there is more, and the caller comes back at once, so that one turn never holds up the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.configs.topic_settings import unclean_election_enabled
from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.election import Wish
from controller.elections.eligibility import EligibilityOf, is_eligible
from controller.elections.partition_change import (
    PartitionChange,
    Target,
    change_partition,
    is_preferred,
    replicas_of,
)
from controller.elections.triggers import (
    NO_BROKER_CHANGE,
    NONE,
    election_order,
    eligibility_in,
    safety_of,
)
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.schema import MetadataRecord

ELECTIONS_PER_TURN: Final = 1_000


def decide_rebalance(view: ControllerView) -> Decision[bool]:
    """Elect the preferred leaders that could lead and do not; True when there may be more."""
    return _bounded(_preferred_elections(view))


def decide_unclean_elections(view: ControllerView) -> Decision[bool]:
    """Give leaderless partitions of topics that allow it any live leader; True: may be more."""
    return _bounded(_unclean_elections(view))


def _bounded(elections: Iterator[MetadataRecord]) -> Decision[bool]:
    records = []
    for record in elections:
        records.append(record)
        if len(records) == ELECTIONS_PER_TURN:
            return Decision(tuple(records), True)
    return Decision(tuple(records), False)


def _preferred_elections(view: ControllerView) -> Iterator[MetadataRecord]:
    order, now_ms = election_order(view), view.now_ms
    eligibility_of = eligibility_in(view, NO_BROKER_CHANGE)
    for topic, index, partition in _partitions(view):
        place = replicas_of(topic.id, index, partition)
        if is_preferred(place, partition.leader, order=order, now_ms=now_ms):
            continue
        first = order(place, partition.replicas, now_ms)[0]
        if first not in partition.isr or not is_eligible(eligibility_of(place, first)):
            continue
        election = (Wish.PREFERRED, Cause.PREFERRED_REBALANCE)
        change = _elected(view, topic, index, *election, eligibility_of)
        if change is not None:
            yield change.record


def _unclean_elections(view: ControllerView) -> Iterator[MetadataRecord]:
    eligibility_of = eligibility_in(view, NO_BROKER_CHANGE)
    for topic, index, partition in _partitions(view):
        if partition.leader != NO_LEADER or not unclean_election_enabled(view, topic.name):
            continue
        election = (Wish.UNCLEAN, Cause.UNCLEAN_CONFIG)
        change = _elected(view, topic, index, *election, eligibility_of)
        if change is not None and change.elected.leader != NO_LEADER:
            yield change.record


def _elected(
    view: ControllerView,
    topic: TopicImage,
    index: int,
    election: Wish,
    cause: Cause,
    eligibility_of: EligibilityOf,
) -> PartitionChange | None:
    """What an election changes about a partition that stays as it is in all else."""
    return change_partition(
        topic.partitions[index],
        topic_id=topic.id,
        partition_id=index,
        target=Target(),
        election=election,
        cause=cause,
        safety=safety_of(view, topic, eligibility_of=eligibility_of, unclean_shutdown=NONE),
        touch=False,
    )


def _partitions(view: ControllerView) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for _, topic in sorted(view.image.topics.by_name.items()):
        for index, partition in sorted(topic.partitions.items()):
            yield topic, index, partition
