"""Elections that the active controller begins by itself.

Preferred leaders get their partitions back (`auto.leader.rebalance.enable`), and partitions without
a leader get one uncleanly, or their last known leader, where that has become allowed. A turn is
bounded: the reply says whether there is more, and the caller comes back at once, so that one turn
never holds up the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext
from controller.elections.election import Wish
from controller.elections.eligibility import is_eligible
from controller.elections.partition_change import last_known_candidate
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.schema import MetadataRecord

ELECTIONS_PER_TURN: Final = 1_000


def decide_rebalance(view: ControllerView) -> Decision[bool]:
    """Elect the preferred leaders that could lead and do not; True when there may be more."""
    return _bounded(_preferred_elections(view))


def decide_unclean_elections(view: ControllerView) -> Decision[bool]:
    """Give leaderless partitions of topics that allow it any live leader, or the last known one;
    True: may be more."""
    return _bounded(_unclean_elections(view))


def _bounded(elections: Iterator[MetadataRecord]) -> Decision[bool]:
    records = []
    for record in elections:
        records.append(record)
        if len(records) == ELECTIONS_PER_TURN:
            return Decision(tuple(records), True)
    return Decision(tuple(records), False)


def _preferred_elections(view: ControllerView) -> Iterator[MetadataRecord]:
    elections = ElectionContext(view)
    for topic, index, partition in _partitions(view):
        first = elections.candidates(topic, index, partition)[0]
        if first == partition.leader or first not in partition.isr:
            continue
        if not is_eligible(elections.eligibility_in(topic, index, partition)(first)):
            continue
        change = elections.change_partition(
            topic, index, partition, Cause.PREFERRED_REBALANCE, election=Wish.PREFERRED
        )
        assert change is not None, "another one leads"
        yield change.record


def _unclean_elections(view: ControllerView) -> Iterator[MetadataRecord]:
    elections = ElectionContext(view)
    for topic, index, partition in _partitions(view):
        if partition.leader != NO_LEADER:
            continue
        rules = elections.rules(topic)
        last_known = last_known_candidate(partition, rules.safety)
        if rules.election is not Wish.UNCLEAN and last_known is None:
            continue
        change = elections.change_partition(topic, index, partition, Cause.UNCLEAN_CONFIG)
        if change is not None and change.elected.leader != NO_LEADER:
            yield change.record


def _partitions(view: ControllerView) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for _, topic in sorted(view.image.topics.by_name.items()):
        for index, partition in sorted(topic.partitions.items()):
            yield topic, index, partition
