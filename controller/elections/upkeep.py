"""Elections that the active controller starts by itself.

Preferred leaders get their partitions back (`auto.leader.rebalance.enable`). Leaderless partitions
get an unclean leader, or their last known leader, once that is allowed. Each step is bounded. The
reply reports whether there is more, and the caller continues at once, after other operations had
their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext
from controller.elections.election import Wish
from controller.elections.eligibility import is_eligible
from controller.elections.partition_change import last_known_candidate
from controller.elections.triggers import BEGIN, ChangePosition, partitions_since
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.schema import MetadataRecord

ELECTIONS_PER_TURN: Final = 1_000
LOOKS_PER_TURN: Final = 1_000
"""Partitions that are checked for their preferred leader in one step: 2 or 3 ms."""
PREFERRED_PER_TURN: Final = 250


class Rebalance:
    """Preferred leader elections for all partitions, in bounded steps.

    The reply is True until a pass over all partitions is complete. The preferred replica may change
    with time alone (KIP-1303), so each pass checks all partitions again.
    """

    def __init__(self) -> None:
        self._since = BEGIN

    def __call__(self, view: ControllerView) -> Decision[bool]:
        decision = decide_rebalance(view, self._since)
        self._since = decision.reply or BEGIN
        return Decision(decision.records, decision.reply is not None)


def decide_rebalance(
    view: ControllerView, since: ChangePosition = BEGIN
) -> Decision[ChangePosition | None]:
    """Elect preferred leaders that could lead and do not, from `since` on.

    The reply is the place to continue from, None at the end.
    """
    elections = ElectionContext(view)
    records: list[MetadataRecord] = []
    partitions = partitions_since(view, since)
    for topic, index, partition in islice(partitions, LOOKS_PER_TURN):
        record = _preferred_election(elections, topic, index, partition)
        if record is not None:
            records.append(record)
            if len(records) == PREFERRED_PER_TURN:
                break
    following = next(partitions, None)
    where = None if following is None else ChangePosition(following[0].name, following[1])
    return Decision(tuple(records), where)


def _preferred_election(
    elections: ElectionContext, topic: TopicImage, index: int, partition: PartitionImage
) -> MetadataRecord | None:
    first = elections.candidates(topic, index, partition)[0]
    if first == partition.leader or first not in partition.isr:
        return None
    if not is_eligible(elections.eligibility_in(topic, index, partition)(first)):
        return None
    change = elections.change_partition(
        topic, index, partition, Cause.PREFERRED_REBALANCE, election=Wish.PREFERRED
    )
    assert change is not None, "another one leads"
    return change.record


def decide_unclean_elections(view: ControllerView) -> Decision[bool]:
    """Elect any live replica, or the last known leader, in leaderless partitions that allow it.

    The reply is True if there may be more.
    """
    records = tuple(islice(_unclean_elections(view), ELECTIONS_PER_TURN))
    return Decision(records, len(records) == ELECTIONS_PER_TURN)


def _unclean_elections(view: ControllerView) -> Iterator[MetadataRecord]:
    elections = ElectionContext(view)
    for topic, index, partition in partitions_since(view):
        if partition.leader != NO_LEADER:
            continue
        rules = elections.rules(topic)
        last_known = last_known_candidate(partition, rules.safety)
        if rules.election is not Wish.UNCLEAN and last_known is None:
            continue
        change = elections.change_partition(topic, index, partition, Cause.UNCLEAN_CONFIG)
        if change is not None and change.elected.leader != NO_LEADER:
            yield change.record
