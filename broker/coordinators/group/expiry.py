"""Offsets and groups that end by themselves: by age, or with their topic.

Age counts from the moment the group became empty, or from the commit for groups that never had
members. While a group has members, only offsets of topics that none of them reads can expire, and
only when the group is stable: during a rebalance the subscriptions are those of yesterday
(KAFKA-13636). A client of OffsetCommit v2-4 may have set its own end, which then decides alone.

An empty group without offsets is removed with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from broker.coordinators.group.core import Core
from broker.coordinators.group.decision import Decision, Now
from broker.coordinators.group.live import LiveGroup
from broker.coordinators.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    ParsedRecord,
    TopicPartition,
)
from broker.coordinators.group.states import GroupState
from protocol.ids import ZERO_UUID

RECORDS_PER_BATCH_MAX: Final = 1_000
"""Tombstones in one append: far below the smallest sensible max.message.bytes of the topic."""


def expirable_groups(core: Core) -> list[str]:
    """Groups of ours that have offsets or metadata, in order."""
    hard = core.appended
    return sorted({*hard.offsets, *hard.groups} - set(hard.foreign))


def decide_expired(core: Core, group_ids: Sequence[str], now: Now) -> list[Decision]:
    """Tombstones of everything in these groups whose time is over."""
    records: list[ParsedRecord] = []
    for group_id in group_ids:
        records.extend(_expired_of(core, group_id, now))
    core.counters.offset_expirations += sum(isinstance(each, OffsetRecord) for each in records)
    return _batches(records)


def decide_topics_deleted(core: Core, deleted: Mapping[str, bytes]) -> list[Decision]:
    """Tombstones of all offsets of the topics in `deleted` (name -> topic id). An offset that was
    committed for another topic of the same name stays."""
    records: list[ParsedRecord] = []
    for group_id, offsets in sorted(core.appended.offsets.items()):
        for at, committed in sorted(offsets.items()):
            topic_id = deleted.get(at.topic)
            if topic_id is not None and committed.topic_id in (ZERO_UUID, topic_id):
                records.append(OffsetRecord(group_id, at, None))
    core.counters.offset_deletions += len(records)
    return _batches(records)


def _batches(records: list[ParsedRecord]) -> list[Decision]:
    size = RECORDS_PER_BATCH_MAX
    return [Decision(records=records[at : at + size]) for at in range(0, len(records), size)]


def _expired_of(core: Core, group_id: str, now: Now) -> Iterator[ParsedRecord]:
    group = core.groups.get(group_id)
    if group is not None and group.pending:
        return  # Somebody has an id and is about to join.
    left = 0
    for at, committed in sorted(core.appended.offsets_of(group_id).items()):
        if _is_expired(core, group, at, committed, now):
            yield OffsetRecord(group_id, at, None)
        else:
            left += 1
    empty = group is None or group.state is GroupState.EMPTY
    if left == 0 and empty and group_id in core.appended.groups:
        yield GroupRecord(group_id, None)


def _is_expired(
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
