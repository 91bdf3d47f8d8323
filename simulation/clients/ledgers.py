"""The ledgers of one simulated world: of each topic's partitions, while the topic exists."""

from __future__ import annotations

from collections.abc import Mapping

from simulation.judges.compacted import CompactedLedger
from simulation.judges.ledger import PartitionLedger
from simulation.judges.partitions import Promises


class Ledgers:
    """The ledgers of partitions that clients use at the moment."""

    def __init__(self, promises: Promises) -> None:
        self.partitions: list[PartitionLedger] = []
        self.keyed: list[CompactedLedger] = []
        """Ledgers of the partitions of compacted topics."""
        self.namesakes: set[str] = set()
        """Names that an earlier topic had. A broker that has not learned of the deletion answers
        requests by name for the earlier topic."""
        self._promises = promises
        self._first_ids: dict[str, bytes] = {}
        self._ended: set[bytes] = set()

    def found(self, topic: str, topic_id: bytes, count: int) -> None:
        """Record that the cluster has the topic with this number of partitions. A topic of the same
        name with another id has ended."""
        if topic_id in self._ended:
            return
        if self._first_ids.setdefault(topic, topic_id) != topic_id:
            self.namesakes.add(topic)
        if topic in self._promises.compacted:
            at = len([one for one in self.keyed if one.topic_id == topic_id])
            self.keyed += [CompactedLedger(topic, n, topic_id) for n in range(at, count)]
            return
        for gone in {p.topic_id for p in self.partitions if p.topic == topic} - {topic_id}:
            self.end(gone)
        known = {p.index for p in self.partitions if p.topic_id == topic_id}
        self.partitions += [
            PartitionLedger(topic, index, topic_id) for index in range(count) if index not in known
        ]

    def end(self, topic_id: bytes) -> None:
        """End the ledgers of a topic that is deleted or about to be: no promise holds for it any
        more."""
        self._ended.add(topic_id)
        for one in self.partitions:
            one.ended = one.ended or one.topic_id == topic_id
        self.partitions = [one for one in self.partitions if not one.ended]

    def partition(self, topic: str, index: int) -> PartitionLedger | None:
        """Return the ledger of one partition, None if there is no such partition at the moment."""
        return next((p for p in self.partitions if (p.topic, p.index) == (topic, index)), None)

    def judge(self, topic_ids: Mapping[str, bytes]) -> None:
        """Check the ledgers: every acknowledged record is at its offset, none is there twice, no
        refused record is there.

        Args:
            topic_ids: by name, for topics that no client has used.
        """
        for one in self.partitions:
            if one.topic in self._promises.given_up:
                continue
            topic_id = one.topic_id or topic_ids[one.topic]
            truth = self._promises.partitions[topic_id, one.index]
            one.check(truth.end, sorted(truth.values.items()))
