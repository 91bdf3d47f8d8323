"""Soft facts about logs: what brokers have said of their replicas, for elections that compare them.

One place for all of it, answers to questions and reports alike, by topic id, partition, broker and
broker epoch. Nothing of it is in the metadata log, so a new active controller knows nothing. A fact
is about one life of a broker: what it said before it registered again says nothing about the disk
it came back with, so such a fact is never given out, whoever asks and however late it came.
"""

from __future__ import annotations

from typing import NamedTuple

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


class LogFacts:
    """Facts by replica and life of its broker; the newest of each."""

    __slots__ = ("_facts",)

    def __init__(self) -> None:
        self._facts: dict[Replica, tuple[int, LogFact]] = {}

    def __len__(self) -> int:
        return len(self._facts)

    def learn(self, replica: Replica, broker_epoch: int, fact: LogFact) -> None:
        """A broker said this in the life with that epoch. What it said in a later one stays, and so
        does what was heard later: answers may overtake each other."""
        known = self._facts.get(replica)
        if known is not None and (known[0], known[1].heard_ms) > (broker_epoch, fact.heard_ms):
            return
        self._facts[replica] = (broker_epoch, fact)

    def of(self, replica: Replica, broker_epoch: int) -> LogFact | None:
        """What the broker said in this life, None if nothing."""
        known = self._facts.get(replica)
        return known[1] if known is not None and known[0] == broker_epoch else None

    def follow(self, image: MetadataImage) -> None:
        """Forget lives that are over, and replicas that are gone."""
        brokers, topics = image.cluster.brokers, image.topics.by_id
        for replica, (broker_epoch, _) in list(self._facts.items()):
            broker = brokers.get(replica.broker_id)
            topic = topics.get(replica.topic_id)
            partition = None if topic is None else topic.partitions.get(replica.partition_id)
            if (
                broker is None
                or broker.epoch != broker_epoch
                or partition is None
                or replica.broker_id not in partition.replicas
            ):
                del self._facts[replica]

    def forget(self, replica: Replica) -> None:
        """Nobody needs it any more."""
        self._facts.pop(replica, None)

    def clear(self) -> None:
        """Start over, as a controller that has just become active."""
        self._facts.clear()
