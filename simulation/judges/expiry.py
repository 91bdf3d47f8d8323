"""Lifetime of committed offsets according to `__consumer_offsets` (G9). Pure.

Every record of that log has the wall clock time of the coordinator that wrote it, so clocks may
jump: a deletion is compared with the times of earlier records. Otherwise only an operator who
deletes their topic deletes offsets.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.codec import decode
from protocol.errors import ProtocolError
from protocol.ids import ZERO_UUID
from protocol.internal import decode_versioned
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from simulation.judges.compacted import Keyed
from simulation.world.invariants import require

OFFSETS, GROUP = (0, 1), 2
"""Types of records, the first two bytes of a key."""
SOON_MS = 10_000
"""Milliseconds before their expiry from which offsets are awaited."""


class At(NamedTuple):
    """Group and partition of an offset."""

    group: str
    topic: str
    partition: int


@dataclass
class OffsetLives:
    """The committed offsets and metadata of all groups. `retention_ms`:
    `offsets.retention.minutes`."""

    retention_ms: int
    offsets: dict[At, OffsetCommitValue] = field(default_factory=dict)
    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)

    def add(self, record: Keyed, time_ms: int, deleted: Container[str]) -> At | str | None:
        """Add the next record of the log; `deleted` are the topics that operators delete.

        Returns:
            The place of an offset that has ended, or the group that has, None for any other record.

        Raises:
            Violation: an offset was deleted before its time. Its own expiry decides if it has one.
                Else it
                lasts for the retention time from its commit or, if the group has had members, from
                when the
                last one left. An offset that a member of the group reads stays. Or a group was
                deleted that
                has members or offsets.
        """
        kind = int.from_bytes(record.key[:2], "big")
        if kind == GROUP:
            return self._add_group(record)
        if kind not in OFFSETS:
            return None
        key, _ = decode(OffsetCommitKey, record.key, 0, 2)
        at = At(key.group, key.topic, key.partition)
        if record.value is not None:
            self.offsets[at] = decode_versioned(OffsetCommitValue, record.value)[0]
            return None
        if at not in self.offsets:
            return None
        if at.topic not in deleted:
            end_ms = self.end_ms(at)
            require(end_ms is not None, f"G9: {at} went, and members of its group read the topic")
            require(
                end_ms is None or time_ms >= end_ms,
                f"G9: {at} went at {time_ms}, it lasts until {end_ms}",
            )
        del self.offsets[at]
        return at

    def _add_group(self, record: Keyed) -> str | None:
        key, _ = decode(GroupMetadataKey, record.key, 0, 2)
        if record.value is not None:
            value = decode_versioned(GroupMetadataValue, record.value)[0]
            self._same_assignment(key.group, self.groups.get(key.group), value)
            self.groups[key.group] = value
            return None
        before = self.groups.pop(key.group, None)
        if before is None:
            return None
        left = [str(at) for at in self.offsets if at.group == key.group]
        members = [one.member_id for one in before.members]
        require(
            not members and not left,
            f"G9: {key.group} went, with members {members}, offsets {left}",
        )
        return key.group

    def _same_assignment(
        self, group: str, before: GroupMetadataValue | None, now: GroupMetadataValue
    ) -> None:
        """Check that a generation has one assignment (G8). A static member that came back has
        another id, so only members in both records are compared."""
        if before is None or before.generation != now.generation:
            return
        old, new = (
            {one.member_id: one.assignment for one in each.members} for each in (before, now)
        )
        require(
            all(new.get(name, share) == share for name, share in old.items()),
            f"G8: {group} has two assignments in generation {now.generation}",
        )

    def old_namesake(self, topic_ids: Mapping[str, bytes]) -> At | None:
        """Return an offset of a deleted topic whose name another topic has today, else None (G9).

        `topic_ids` are those of today, by name.
        """
        for at, offset in self.offsets.items():
            today = topic_ids.get(at.topic)
            if today is not None and offset.topic_id not in (ZERO_UUID, today):
                return at
        return None

    def end_ms(self, at: At) -> int | None:
        """Return when this offset expires; None while the group's members read the topic."""
        one, group = self.offsets[at], self.groups.get(at.group)
        since_ms = one.commit_timestamp
        if group is not None and group.members:
            if any(_reads(each.subscription, at.topic) for each in group.members):
                return None
        elif group is not None and group.current_state_timestamp >= 0:
            since_ms = group.current_state_timestamp
        return since_ms + self.retention_ms if one.expire_timestamp < 0 else one.expire_timestamp

    def going(self, now_ms: int) -> At | None:
        """Return an offset that is about to expire by this clock, or is overdue; else None."""
        for at in self.offsets:
            end_ms = self.end_ms(at)
            if end_ms is not None and now_ms + SOON_MS >= end_ms:
                return at
        return None


def _reads(subscription: bytes, topic: str) -> bool:
    try:
        found, _ = decode_versioned(ConsumerProtocolSubscription, subscription)
    except ProtocolError:
        return True
    return topic in found.topics
