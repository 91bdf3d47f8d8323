"""Expiry of offsets and groups: by age, or with their topic.

Age counts from when the group became empty, or from the commit for groups that never had members.
If a group has members, only offsets of topics that no member subscribes to can expire. The group
must be stable: during a rebalance the subscriptions are outdated (KAFKA-13636). A client of
OffsetCommit v2-4 may have set an expiry of its own, which then decides alone.

An empty group without offsets is removed with them. Offsets that an open transaction may still
change do not expire, nor does their group.

A shard may hold hundreds of thousands of offsets. Iterations over them are done in slices of one
decision each, and the state may change between two slices. So every offset is judged by the state
at its slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from broker.coordinators.group.core import Core
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.deleted_topics import Value, is_stale, value_of, values
from broker.coordinators.group.live_group import LiveGroup
from broker.coordinators.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    ParsedRecord,
    TopicPartition,
)
from broker.coordinators.group.states import GroupState
from broker.coordinators.runtime.decision import Now

LOOKED_AT_PER_SLICE: Final = 500
"""Groups and offsets per slice: about a millisecond. Also the maximum of tombstones in one append:
far below the smallest sensible max.message.bytes of the topic."""


# -- by age


def expirable_groups(core: Core) -> Iterator[str]:
    """Yield the classic groups that have offsets or metadata."""
    hard = core.appended
    own = (group_id for group_id in hard.groups if group_id not in hard.foreign)
    yield from _in_slices(own)
    simple = (
        group_id
        for group_id in hard.offsets
        if group_id not in hard.groups and group_id not in hard.foreign
    )
    yield from _in_slices(simple)


def _in_slices(group_ids: Iterator[str]) -> Iterator[str]:
    """Yield sorted within each slice only: sorting all of them would take too long."""
    while some := sorted(islice(group_ids, LOOKED_AT_PER_SLICE)):
        yield from some


def decide_expired(core: Core, group_ids: Iterable[str], now: Now) -> Iterator[Decision]:
    """Yield the tombstones for all expired offsets and groups, one slice at a time. A decision may
    be empty; the caller must carry out each before it requests the next."""
    records: list[ParsedRecord] = []
    looked_at = 0
    for group_id in group_ids:
        for at in list(core.appended.offsets_of(group_id)):
            if _is_expired(core, group_id, at, now):
                records.append(OffsetRecord(group_id, at, None))
            looked_at += 1
            if looked_at >= LOOKED_AT_PER_SLICE:
                yield _expired(core, records)
                records, looked_at = [], 0
        if _is_over(core, group_id, records):
            records.append(GroupRecord(group_id, None))
        looked_at += 1
    yield _expired(core, records)


def _expired(core: Core, records: list[ParsedRecord]) -> Decision:
    core.counters.offset_expirations += sum(isinstance(each, OffsetRecord) for each in records)
    return Decision(records=[*records])


def _is_over(core: Core, group_id: str, records: Sequence[ParsedRecord]) -> bool:
    """Return whether the group has nothing but its metadata left, once `records` are applied."""
    state, group = core.appended, core.groups.get(group_id)
    if group_id not in state.groups or state.pending_of(group_id):
        return False
    if group is not None and (group.pending or group.state is not GroupState.EMPTY):
        return False
    going = sum(record.group_id == group_id for record in records)
    return len(state.offsets_of(group_id)) == going


def _is_expired(core: Core, group_id: str, at: TopicPartition, now: Now) -> bool:
    state, group = core.appended, core.groups.get(group_id)
    committed = state.offsets_of(group_id).get(at)
    if committed is None or at in state.pending_of(group_id):
        return False
    if group is not None and group.pending:
        return False  # A client has a member id and is about to join.
    return _is_too_old(core, group, at, committed, now)


def _is_too_old(
    core: Core,
    group: LiveGroup | None,
    at: TopicPartition,
    committed: CommittedOffset,
    now: Now,
) -> bool:
    since_ms = committed.commit_timestamp_ms
    if group is not None and group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else since_ms
        elif group.state is not GroupState.STABLE or not group.knows_subscriptions:
            return False
        if group.is_subscribed(at.topic):
            return False
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now.wall_ms >= committed.expire_timestamp_ms
    return now.wall_ms - since_ms >= core.config.offsets_retention_ms


# -- with their topic


def decide_stale(core: Core) -> Iterator[Decision]:
    """Yield the tombstones for all offsets of deleted topics, one slice at a time. An offset that
    was committed for a later topic of the same name stays."""
    entries = values(core.appended)
    while some := list(islice(entries, LOOKED_AT_PER_SLICE)):
        doomed = sorted(each[:2] for each in some if _goes(core, *each))
        yield Decision(records=[OffsetRecord(*each, None) for each in doomed])
        core.counters.offset_deletions += sum(
            value_of(core.appended, *each) is None for each in doomed
        )


def _goes(core: Core, group_id: str, at: TopicPartition, value: Value) -> bool:
    """Return whether the offset still exists and is stale, without a newer pending one: a tombstone
    would remove that, too."""
    if value_of(core.appended, group_id, at) is not value:
        return False
    pending = core.appended.pending_of(group_id).get(at, value)
    deleted = core.deletions.entries
    return all(is_stale(core.topics, deleted, group_id, at, each) for each in (value, pending))
