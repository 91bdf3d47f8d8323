"""Offsets that a transaction has sent and not yet committed (KIP-98, KIP-447).

The offsets of a transaction are records of `__consumer_offsets` with the transactional bit, and a
marker ends the producer's transaction in that partition. Until then they are pending: the group
keeps the offsets it had, and a client that asks for stable ones is told to wait. A marker that
commits makes them the group's offsets, one that aborts forgets them.

Order is that of the records, not of the markers: an offset that was committed behind a pending one,
by a plain commit or by another transaction, stays when the earlier one is committed at last. A
tombstone forgets what is pending, too.

Nothing here is written by this coordinator: transactions are not built, but the directories of
Apache Kafka hold them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from immutables import Map

from broker.coordinators.group.records import (
    CommittedOffset,
    PendingOffsetRecord,
    TopicPartition,
)


class PendingOffset(NamedTuple):
    """log_offset is where its record stands; value is None once a later record has overtaken it."""

    value: CommittedOffset | None
    log_offset: int


class EndedOffset(NamedTuple):
    """What a transaction that ended had pending for a partition."""

    group_id: str
    topic_partition: TopicPartition
    pending: PendingOffset


ByProducer = Map[int, PendingOffset]
PendingOffsets = Map[TopicPartition, ByProducer]

NO_PENDING: Final[PendingOffsets] = Map()
_NOBODY: Final[ByProducer] = Map()


class OpenTransactions(NamedTuple):
    """A frozen value. offsets: by group id, partition and producer id. groups: ids of the groups
    that a producer has sent offsets to."""

    offsets: Map[str, PendingOffsets]
    groups: Map[int, frozenset[str]]

    def of(self, group_id: str) -> PendingOffsets:
        return self.offsets.get(group_id, NO_PENDING)

    def added(self, record: PendingOffsetRecord) -> OpenTransactions:
        """A transaction sent an offset; an earlier one of the same transaction is replaced."""
        group_id, at, value, producer_id, log_offset = record
        producers = self.of(group_id).get(at, _NOBODY)
        producers = producers.set(producer_id, PendingOffset(value, log_offset))
        groups = self.groups.get(producer_id, frozenset()) | {group_id}
        opened = self._replace(groups=self.groups.set(producer_id, groups))
        return opened._with(group_id, at, producers)

    def overtaken(
        self, group_id: str, at: TopicPartition, before: int | None = None
    ) -> OpenTransactions:
        """Something newer is committed for the partition: pending records that stand before that
        offset of the log (None: all) will change nothing any more."""
        producers = self.of(group_id).get(at)
        if producers is None:
            return self
        for producer_id, pending in producers.items():
            if before is None or pending.log_offset < before:
                producers = producers.set(producer_id, pending._replace(value=None))
        return self._with(group_id, at, producers)

    def forgotten(self, group_id: str, at: TopicPartition) -> OpenTransactions:
        """The partition's offset is deleted, with all that is pending for it."""
        return self._with(group_id, at, _NOBODY) if at in self.of(group_id) else self

    def ended(self, producer_id: int) -> tuple[OpenTransactions, list[EndedOffset]]:
        """The producer's transaction is over; what it had pending, in a fixed order."""
        after = self
        ended: list[EndedOffset] = []
        for group_id in sorted(self.groups.get(producer_id, frozenset())):
            for at, producers in sorted(self.of(group_id).items(), key=lambda item: item[0]):
                pending = producers.get(producer_id)
                if pending is not None:
                    ended.append(EndedOffset(group_id, at, pending))
                    after = after._with(group_id, at, producers.delete(producer_id))
        if producer_id in after.groups:
            after = after._replace(groups=after.groups.delete(producer_id))
        return after, ended

    def _with(self, group_id: str, at: TopicPartition, producers: ByProducer) -> OpenTransactions:
        """Without entries that hold nothing."""
        of_group = self.of(group_id)
        of_group = of_group.set(at, producers) if producers else of_group.delete(at)
        if of_group:
            return self._replace(offsets=self.offsets.set(group_id, of_group))
        return self._replace(offsets=self.offsets.delete(group_id))


NO_TRANSACTIONS: Final = OpenTransactions(offsets=Map(), groups=Map())
