"""Brokers' answers about their logs, kept as soft state for elections that compare logs.

All answers are stored here, by topic id, partition, broker and broker epoch. Nothing of it is in
the metadata log, so a new active controller starts empty. An answer is about one incarnation of a
broker: an answer from before a new registration does not describe the disk of the new incarnation.
So lookups never return such an answer, however late it arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from metalog.image.values import MetadataImage


class Replica(NamedTuple):
    """A broker's copy of a partition."""

    topic_id: bytes
    partition_id: int
    broker_id: int


class LogFact(NamedTuple):
    """The end of a replica's log, as its broker reported it.

    last_epoch: leader epoch of the last batch, not of a later epoch without records. leader_epoch:
    the partition's, as the broker knew it. If it differs from the partition's, the log may have
    changed since, or this controller is behind. heard_ms: monotonic time of the answer.
    """

    last_epoch: int
    end_offset: int
    leader_epoch: int
    heard_ms: float


Known: TypeAlias = tuple[int, LogFact]
"""The broker epoch of a fact, and the fact."""

NOTHING: Final[Mapping[int, Known]] = {}


class LogFacts:
    """The newest fact of each replica, with its broker epoch.

    Facts are grouped by partition: an election needs those of all its replicas, and ten thousand
    partitions may have an election at the same time.
    """

    __slots__ = ("_facts",)

    def __init__(self) -> None:
        self._facts: dict[tuple[bytes, int], dict[int, Known]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._facts.values()))

    def learn(self, replica: Replica, broker_epoch: int, fact: LogFact) -> None:
        """Store a broker's answer, unless there is one of a later incarnation or a later time:
        answers may overtake each other."""
        facts = self._facts.setdefault(replica[:2], {})
        known = facts.get(replica.broker_id)
        if known is not None and (known[0], known[1].heard_ms) > (broker_epoch, fact.heard_ms):
            return
        facts[replica.broker_id] = (broker_epoch, fact)

    def of(self, replica: Replica, broker_epoch: int) -> LogFact | None:
        """Return the answer that the broker gave in this incarnation, None without one."""
        known = self.told_of(replica.topic_id, replica.partition_id).get(replica.broker_id)
        return counted(known, broker_epoch)

    def told_of(self, topic_id: bytes, partition_id: int) -> Mapping[int, Known]:
        """Return all answers about a partition by broker; `counted` selects the valid ones."""
        return self._facts.get((topic_id, partition_id), NOTHING)

    def follow(self, image: MetadataImage) -> None:
        """Drop facts of earlier broker incarnations and of removed replicas."""
        brokers, topics = image.cluster.brokers, image.topics.by_id
        for (topic_id, partition_id), facts in list(self._facts.items()):
            topic = topics.get(topic_id)
            partition = None if topic is None else topic.partitions.get(partition_id)
            for broker_id, (broker_epoch, _) in list(facts.items()):
                broker = brokers.get(broker_id)
                if (
                    broker is None
                    or broker.epoch != broker_epoch
                    or partition is None
                    or broker_id not in partition.replicas
                ):
                    self.forget(Replica(topic_id, partition_id, broker_id))

    def forget(self, replica: Replica) -> None:
        """Drop the fact of a replica."""
        facts = self._facts.get(replica[:2])
        if facts is not None:
            facts.pop(replica.broker_id, None)
            if not facts:
                del self._facts[replica[:2]]

    def forget_partition(self, topic_id: bytes, partition_id: int) -> None:
        """Drop all facts of a partition."""
        self._facts.pop((topic_id, partition_id), None)

    def clear(self) -> None:
        """Start over, as a controller that has just become active."""
        self._facts.clear()


def counted(known: Known | None, broker_epoch: int) -> LogFact | None:
    """Return the fact if it is from the broker's current incarnation, else None."""
    return known[1] if known is not None and known[0] == broker_epoch else None
