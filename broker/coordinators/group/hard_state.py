"""Hard state of one shard: exactly the content of its `__consumer_offsets` partition.

`HardState` is a frozen value. Only `replay` makes a new one from an old one, both while loading and
at run time. So state in memory is by construction the replay of the log (invariant G10). Values are
persistent maps: keeping the states as of the last committed and the last appended record costs
nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from immutables import Map

from broker.coordinators.group.records import (
    CommittedOffset,
    EndTransactionRecord,
    ForeignGroupRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    ReplayedRecord,
    TopicPartition,
)
from broker.coordinators.group.transactions import (
    NO_TRANSACTIONS,
    OpenTransactions,
    PendingOffsets,
)

V = TypeVar("V")
GroupOffsets = Map[TopicPartition, CommittedOffset]


class HardState(NamedTuple):
    """State of all groups of a shard.

    - `groups`: metadata by group id.
    - `offsets`: by group id. A group with offsets but no metadata is a "simple" one, used by
      consumers that manage their partitions themselves.
    - `foreign`: type name of groups whose protocol this coordinator does not run, by group id.
    - `transactions`: offsets that count only when a marker commits them.
    """

    groups: Map[str, GroupMetadata]
    offsets: Map[str, GroupOffsets]
    foreign: Map[str, str]
    transactions: OpenTransactions = NO_TRANSACTIONS

    def offsets_of(self, group_id: str) -> GroupOffsets:
        return self.offsets.get(group_id, NO_OFFSETS)

    def pending_of(self, group_id: str) -> PendingOffsets:
        return self.transactions.of(group_id)

    def has_offsets(self, group_id: str) -> bool:
        """Return whether there are offsets of the group, including pending ones."""
        return group_id in self.offsets or group_id in self.transactions.offsets

    def has_group(self, group_id: str) -> bool:
        return group_id in self.groups or self.has_offsets(group_id) or group_id in self.foreign

    def offset_count(self) -> int:
        return sum(len(offsets) for offsets in self.offsets.values())


NO_OFFSETS: Final[GroupOffsets] = Map()
EMPTY_STATE: Final = HardState(groups=Map(), offsets=Map(), foreign=Map())


def replay(state: HardState, record: ReplayedRecord) -> HardState:
    """Return the state after `record`. Tombstones of missing entries change nothing."""
    if isinstance(record, OffsetRecord):
        return _replay_offset(state, record)
    if isinstance(record, GroupRecord):
        if record.value is not None:
            return state._replace(groups=state.groups.set(record.group_id, record.value))
        return state._replace(groups=_without(state.groups, record.group_id))
    if isinstance(record, PendingOffsetRecord):
        return state._replace(transactions=state.transactions.added(record))
    if isinstance(record, EndTransactionRecord):
        return _replay_end(state, record)
    return _replay_foreign(state, record)


def _replay_end(state: HardState, record: EndTransactionRecord) -> HardState:
    transactions, ended = state.transactions.ended(record.producer_id)
    state = state._replace(transactions=transactions)
    for group_id, at, pending in ended if record.committed else ():
        if pending.value is not None:
            offset = OffsetRecord(group_id, at, pending.value)
            state = _replay_plain_offset(state, offset)
            overtaken = state.transactions.overtaken(group_id, at, pending.log_offset)
            state = state._replace(transactions=overtaken)
    return state


def _replay_offset(state: HardState, record: OffsetRecord) -> HardState:
    group_id, at = record.group_id, record.topic_partition
    if group_id in state.transactions.offsets:
        transactions = state.transactions
        if record.value is None:
            transactions = transactions.forgotten(group_id, at)
        else:
            transactions = transactions.overtaken(group_id, at)
        state = state._replace(transactions=transactions)
    return _replay_plain_offset(state, record)


def _replay_plain_offset(state: HardState, record: OffsetRecord) -> HardState:
    group_id, offsets = record.group_id, state.offsets
    of_group = offsets.get(group_id, NO_OFFSETS)
    if record.value is not None:
        of_group = of_group.set(record.topic_partition, record.value)
        return state._replace(offsets=offsets.set(group_id, of_group))
    if record.topic_partition not in of_group:
        return state
    of_group = of_group.delete(record.topic_partition)
    if of_group:
        return state._replace(offsets=offsets.set(group_id, of_group))
    return state._replace(offsets=offsets.delete(group_id))


def _replay_foreign(state: HardState, record: ForeignGroupRecord) -> HardState:
    if record.exists:
        return state._replace(foreign=state.foreign.set(record.group_id, record.type_name))
    return state._replace(foreign=_without(state.foreign, record.group_id))


def _without(entries: Map[str, V], key: str) -> Map[str, V]:
    return entries.delete(key) if key in entries else entries
