"""Soft facts about logs: what brokers have said of their replicas, for elections that compare them.

One place for all of it, answers to questions and reports alike, by topic id, partition, broker and
broker epoch. Nothing of it is in the metadata log, so a new active controller knows nothing. A fact
is about one life of a broker: what it said before it registered again says nothing about the disk
it came back with, so such a fact is never given out, whoever asks and however late it came.
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
    """`last_epoch` is the leader epoch of the last batch, not the last one that began without a
    record; `leader_epoch` the partition's as the broker knew it: at another one than the
    partition's the log may have moved since, or this controller is behind. `heard_ms` is
    monotonic."""

    last_epoch: int
    end_offset: int
    leader_epoch: int
    heard_ms: float


Known: TypeAlias = tuple[int, LogFact]
"""The broker epoch in which a fact was told, and the fact."""

NOTHING: Final[Mapping[int, Known]] = {}


class LogFacts:
    """Facts by replica and life of its broker; the newest of each.

    Kept by partition: an election asks about its replicas at once, and ten thousand may have one
    together.
    """

    __slots__ = ("_facts",)

    def __init__(self) -> None:
        self._facts: dict[tuple[bytes, int], dict[int, Known]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._facts.values()))

    def learn(self, replica: Replica, broker_epoch: int, fact: LogFact) -> None:
        """A broker said this in the life with that epoch. What it said in a later one stays, and so
        does what was heard later: answers may overtake each other."""
        facts = self._facts.setdefault(replica[:2], {})
        known = facts.get(replica.broker_id)
        if known is not None and (known[0], known[1].heard_ms) > (broker_epoch, fact.heard_ms):
            return
        facts[replica.broker_id] = (broker_epoch, fact)

    def of(self, replica: Replica, broker_epoch: int) -> LogFact | None:
        """What the broker said in this life, None if nothing."""
        known = self.told_of(replica.topic_id, replica.partition_id).get(replica.broker_id)
        return counted(known, broker_epoch)

    def told_of(self, topic_id: bytes, partition_id: int) -> Mapping[int, Known]:
        """All that was told of a partition, by broker; whether it counts says `counted`."""
        return self._facts.get((topic_id, partition_id), NOTHING)

    def follow(self, image: MetadataImage) -> None:
        """Forget lives that are over, and replicas that are gone."""
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
        """Nobody needs it any more."""
        facts = self._facts.get(replica[:2])
        if facts is not None:
            facts.pop(replica.broker_id, None)
            if not facts:
                del self._facts[replica[:2]]

    def forget_partition(self, topic_id: bytes, partition_id: int) -> None:
        """Nobody needs anything of it any more."""
        self._facts.pop((topic_id, partition_id), None)

    def clear(self) -> None:
        """Start over, as a controller that has just become active."""
        self._facts.clear()


def counted(known: Known | None, broker_epoch: int) -> LogFact | None:
    """What was told, if it was in the life that the broker has now."""
    return known[1] if known is not None and known[0] == broker_epoch else None
