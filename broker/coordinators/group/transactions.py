"""Offsets that a transaction has sent and not yet committed (KIP-98, KIP-447).

The offsets of a transaction are records of `__consumer_offsets` with the transactional bit, and a
marker ends the producer's transaction in that partition. Until then they are pending: the group
keeps its previous offsets, and a client that requests stable ones has to wait. A marker that
commits makes them the group's offsets, one that aborts drops them.

The order is that of the records, not of the markers. If a plain commit or another transaction
commits an offset behind a pending one, it stays when the pending one is finally committed. A
tombstone drops pending offsets, too.

No request leads to such records yet: transactions are not offered, but the log directories of
Apache Kafka contain them.
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
    """A pending offset. `log_offset` is that of its record; `value` becomes None once a later
    record has overtaken it."""

    value: CommittedOffset | None
    log_offset: int


class EndedOffset(NamedTuple):
    """A pending offset of a partition whose transaction has ended."""

    group_id: str
    topic_partition: TopicPartition
    pending: PendingOffset


ByProducer = Map[int, PendingOffset]
PendingOffsets = Map[TopicPartition, ByProducer]

NO_PENDING: Final[PendingOffsets] = Map()
_NOBODY: Final[ByProducer] = Map()


class OpenTransactions(NamedTuple):
    """A frozen value. offsets: by group id, partition and producer id. groups: by producer id, the
    ids of the groups that it has sent offsets to."""

    offsets: Map[str, PendingOffsets]
    groups: Map[int, frozenset[str]]

    def of(self, group_id: str) -> PendingOffsets:
        return self.offsets.get(group_id, NO_PENDING)

    def added(self, record: PendingOffsetRecord) -> OpenTransactions:
        """Add an offset that a transaction sent; it replaces an earlier one of the same
        transaction."""
        group_id, at, value, producer_id, _, log_offset = record
        producers = self.of(group_id).get(at, _NOBODY)
        producers = producers.set(producer_id, PendingOffset(value, log_offset))
        groups = self.groups.get(producer_id, frozenset()) | {group_id}
        opened = self._replace(groups=self.groups.set(producer_id, groups))
        return opened._with(group_id, at, producers)

    def overtaken(
        self, group_id: str, at: TopicPartition, before: int | None = None
    ) -> OpenTransactions:
        """Mark pending offsets as overtaken by a newer committed one. `before` limits them to
        records before that log offset (None: all). They will change nothing any more."""
        producers = self.of(group_id).get(at)
        if producers is None:
            return self
        for producer_id, pending in producers.items():
            if before is None or pending.log_offset < before:
                producers = producers.set(producer_id, pending._replace(value=None))
        return self._with(group_id, at, producers)

    def forgotten(self, group_id: str, at: TopicPartition) -> OpenTransactions:
        """Drop everything that is pending for a partition, because its offset was deleted."""
        return self._with(group_id, at, _NOBODY) if at in self.of(group_id) else self

    def ended(self, producer_id: int) -> tuple[OpenTransactions, list[EndedOffset]]:
        """Remove the pending offsets of a producer whose transaction has ended; return them in a
        fixed order."""
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
        """Set the pending offsets of a partition, without leaving empty entries."""
        of_group = self.of(group_id)
        of_group = of_group.set(at, producers) if producers else of_group.delete(at)
        if of_group:
            return self._replace(offsets=self.offsets.set(group_id, of_group))
        return self._replace(offsets=self.offsets.delete(group_id))


NO_TRANSACTIONS: Final = OpenTransactions(offsets=Map(), groups=Map())
