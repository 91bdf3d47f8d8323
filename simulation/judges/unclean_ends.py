"""Unclean ends of brokers: who has lost records, and which further losses partitions survive.

A broker whose process ended uncleanly may lack unflushed records until it is back in every ISR.
Faults use this to choose an end that every promise survives (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from metalog.image.values import ConfigResourceType, PartitionImage
from simulation.judges.metadata import MetadataTruth
from simulation.shapes.shape import AGGRESSIVE
from simulation.world.invariants import Key, require


class UncleanEnds:
    """The unclean ends of one world's brokers.

    Args:
        given_up: topics without promises, which need no replica.
    """

    def __init__(self, metadata: MetadataTruth, given_up: Set[str]) -> None:
        self.lossy: dict[int, int] = {}
        """Brokers that lost unflushed records, and their broker epoch at that time; until they are
        back in every ISR."""
        self.lowering = 0
        """Number of requests in flight that may lower the number of survivable losses."""
        self._metadata = metadata
        self._given_up = given_up
        self._unclean: dict[int, tuple[int, set[Key]]] = {}
        """Brokers whose process ended: their broker epoch at that time, and the partitions in whose
        ISR they are not back."""
        self._awaited: dict[int, set[Key]] = {}
        """Partitions in whose ISR a lossy broker is not back."""
        self._failed: dict[int, set[Key]] = {}
        """Partitions of brokers that are about to end uncleanly."""

    # --- ends and returns ---------------------------------------------------------------------

    def failed(self, broker_id: int, key: Key) -> None:
        """Enter a failed log, whose broker is about to end."""
        self._failed.setdefault(broker_id, set()).add(key)

    def ended(self, broker_id: int, *, lossy: bool) -> None:
        """Enter the end of a broker's process; `lossy`: unflushed data may be lost."""
        self._failed.pop(broker_id, None)
        image = self._metadata.image
        broker = image.cluster.brokers.get(broker_id)
        if broker is None:
            return
        awaited = {
            (topic.id, index)
            for topic in image.topics.by_id.values()
            for index, one in topic.partitions.items()
            if broker_id in one.replicas and not self._stands_alone(topic.name, one)
        }
        self._unclean[broker_id] = broker.epoch, set(awaited)
        if lossy:
            self.lossy[broker_id] = broker.epoch
            self._awaited[broker_id] = awaited
            if not awaited:
                del self.lossy[broker_id]

    def disk_swapped(self, broker_id: int) -> None:
        """Enter another disk of a machine that is off."""
        epoch, awaited = self._unclean.get(broker_id, (0, set()))
        if self._metadata.image.elr_enabled and awaited:
            self.lossy[broker_id], self._awaited[broker_id] = epoch, set(awaited)

    def joined(self, key: Key, broker_id: int) -> None:
        """Enter that a broker is in the ISR of a partition again."""
        brokers = self._metadata.image.cluster.brokers
        ended_in, awaited = self._unclean.get(broker_id, (0, set()))
        if awaited and brokers[broker_id].epoch > ended_in:
            awaited.discard(key)
        lost_in = self.lossy.get(broker_id)
        if lost_in is not None and brokers[broker_id].epoch > lost_in:
            self._back(key, broker_id)

    def moved_away(self, key: Key, broker_id: int) -> None:
        """Enter that a broker is not a replica any more."""
        if broker_id in self._unclean:
            self._unclean[broker_id][1].discard(key)
        if broker_id in self.lossy:
            self._back(key, broker_id)

    def removed(self, key: Key) -> None:
        """Stop waiting for the replicas of a deleted partition."""
        for _, awaited in self._unclean.values():
            awaited.discard(key)
        for broker_id in list(self.lossy):
            self._back(key, broker_id)

    def _back(self, key: Key, broker_id: int) -> None:
        awaited = self._awaited.get(broker_id, set())
        awaited.discard(key)
        if not awaited:
            self.lossy.pop(broker_id, None)

    def judge_member(self, name: str, key: Key, member: int) -> None:
        """Check that a broker that came back is in ISR or ELR only after it joined the ISR again
        (P11)."""
        broker = self._metadata.image.cluster.brokers.get(member)
        came_back = broker is not None and broker.epoch > self.lossy[member]
        require(
            not came_back or key not in self._awaited.get(member, ()),
            f"P11: {name}: {member} came back from an unclean shutdown and counts as clean",
        )

    # --- further losses -----------------------------------------------------------------------

    def spares(self, broker_id: int, away: Iterable[int] = ()) -> bool:
        """Return whether every partition keeps an ISR member that has lost nothing while this
        broker, and those that are `away`, are out of action."""
        gone = {broker_id, *self.lossy, *away}
        return all(
            set(one.isr) - gone
            or broker_id not in one.replicas
            or self._stands_alone(topic.name, one)
            for topic in self._metadata.image.topics.by_id.values()
            for one in topic.partitions.values()
        )

    def tolerates(self, broker_id: int, *, lossy: bool, away: Iterable[int] = ()) -> bool:
        """Return whether KIP-966 lets every partition survive one more unclean, or `lossy`, end
        (P7).

        Eligible replicas alone survive min ISR - 1 unclean ends at once; a replica that is back in
        the ISR does not count any more. Any number may end if an election waits for the longest log
        of all that may have every record; min ISR - 1 of them may lose records. `away` count as
        replicas that lost records.
        """
        image = self._metadata.image
        if self.lowering:
            return False
        for topic in image.topics.by_id.values():
            for index, one in topic.partitions.items():
                if broker_id not in one.replicas or self._stands_alone(topic.name, one):
                    continue
                if one.adding or one.removing:
                    return False  # it may end with fewer replicas, and so a smaller minimum
                key = (topic.id, index)
                floor = self._metadata.eligible.of[key].floor
                gone = {b for b, (_, awaited) in self._unclean.items() if key in awaited}
                gone |= {b for b, failed in self._failed.items() if key in failed}
                if len(gone | {broker_id}) < floor:
                    continue
                lost = {b for b in self.lossy if key in self._awaited.get(b, ())}
                lost |= {*away} & {*one.replicas} | ({broker_id} if lossy else set())
                if lost and not (self._compares(key, topic.name) and len(lost) < floor):
                    return False
        return True

    def _compares(self, key: Key, topic: str) -> bool:
        """Return whether an election takes the longest log of all replicas that may have every
        record."""
        eligible, image = self._metadata.eligible, self._metadata.image
        return eligible.of[key].whole and eligible.strategy(image, topic) != AGGRESSIVE

    def _stands_alone(self, topic: str, one: PartitionImage) -> bool:
        """Return whether the partition needs no other replica after a lossy power cut: it has no
        promises, or its records are flushed before they are shown."""
        return topic in self._given_up or (len(one.replicas) == 1 and self._flushes(topic))

    def _flushes(self, topic: str) -> bool:
        """Return whether the topic flushes each record before it is shown."""
        configs: Mapping[str, str] = self._metadata.image.configs.get(
            (ConfigResourceType.TOPIC, topic), {}
        )
        return configs.get("flush.messages") == "1"
