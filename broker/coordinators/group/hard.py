"""Hard state of one shard: what the records of its `__consumer_offsets` partition say, no more.

`HardState` is a frozen value. `replay` is the only thing that makes a new one from an old one,
while loading and while running alike, so that state in memory is by construction the replay of the
log (invariant G10). Values are persistent maps: keeping the state as of the last committed record
next to the state as of the last appended one costs nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from immutables import Map

from broker.coordinators.group.records import (
    CommittedOffset,
    ForeignGroupRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    ParsedRecord,
    TopicPartition,
)

V = TypeVar("V")
GroupOffsets = Map[TopicPartition, CommittedOffset]


class HardState(NamedTuple):
    """groups: metadata by group id. offsets: by group id; a group with offsets but no metadata is
    a "simple" one, used by consumers that manage their partitions themselves. foreign: type name of
    groups whose protocol this coordinator does not run, by group id."""

    groups: Map[str, GroupMetadata]
    offsets: Map[str, GroupOffsets]
    foreign: Map[str, str]

    def offsets_of(self, group_id: str) -> GroupOffsets:
        return self.offsets.get(group_id, NO_OFFSETS)

    def has_group(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets or group_id in self.foreign

    def offset_count(self) -> int:
        return sum(len(offsets) for offsets in self.offsets.values())


NO_OFFSETS: Final[GroupOffsets] = Map()
EMPTY_STATE: Final = HardState(groups=Map(), offsets=Map(), foreign=Map())


def replay(state: HardState, record: ParsedRecord) -> HardState:
    """The state after `record`. Tombstones of what is not there change nothing."""
    if isinstance(record, OffsetRecord):
        return _replay_offset(state, record)
    if isinstance(record, GroupRecord):
        if record.value is not None:
            return state._replace(groups=state.groups.set(record.group_id, record.value))
        return state._replace(groups=_without(state.groups, record.group_id))
    return _replay_foreign(state, record)


def _replay_offset(state: HardState, record: OffsetRecord) -> HardState:
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
