"""State that the parts of a group shard share.

`Core` is the shard's memory; `rebalance.py`, `join.py`, `membership.py`, `offsets.py`, `expiry.py`
and `admin.py` are plain functions over it. Only `GroupShard` (shard.py) is used from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.deleted_topics import Deletions, TopicLookup, is_stale
from broker.coordinators.group.hard_state import EMPTY_STATE, HardState
from broker.coordinators.group.live_group import LiveGroup, LiveMember
from broker.coordinators.group.records import CommittedOffset, TopicPartition
from broker.coordinators.group.states import GroupEvent
from broker.coordinators.group.timers import TIMER_STATES, TimerKey, TimerKind, Timers
from broker.coordinators.runtime.decision import Now
from protocol.errors import ErrorCode

MEMBER_ID_BYTES_MAX: Final = 32_767
"""Maximum length of a string in the protocol."""
GROUP_TIMERS: Final = (TimerKind.JOIN, TimerKind.SYNC)
"""Timers that exist once per group."""


class GroupCounters:
    """Plain integers, read when metrics are scraped."""

    __slots__ = (
        "completed_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
    )

    def __init__(self) -> None:
        self.completed_rebalances = 0
        self.offset_commits = 0
        self.offset_deletions = 0
        self.offset_expirations = 0


class Core:
    """State of a shard.

    - `appended`: hard state after the last appended record, the basis of decisions.
    - `committed`: hard state after the last committed record, which clients see.
    - `deletions`: those of topics whose offsets may not all have tombstones yet.
    """

    __slots__ = (
        "_incarnations",
        "appended",
        "committed",
        "config",
        "counters",
        "deletions",
        "groups",
        "new_uuid",
        "timers",
        "topics",
    )

    def __init__(
        self, config: GroupConfig, new_uuid: Callable[[], str], topics: TopicLookup
    ) -> None:
        self.config = config
        self.new_uuid = new_uuid
        self.topics = topics
        self.deletions = Deletions()
        self.counters = GroupCounters()
        self.appended: HardState = EMPTY_STATE
        self.committed: HardState = EMPTY_STATE
        self.groups: dict[str, LiveGroup] = {}
        self.timers = Timers()
        self._incarnations = 0

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """Return `<group.instance.id or client.id>-<uuid>`; a name that is too long is
        truncated."""
        prefix, suffix = group_instance_id or client_id, f"-{self.new_uuid()}"
        room = MEMBER_ID_BYTES_MAX - len(suffix)
        if len(prefix) * 4 > room:
            prefix = prefix.encode()[:room].decode(errors="ignore")
        return prefix + suffix

    def is_stale(self, group_id: str, at: TopicPartition, value: CommittedOffset) -> bool:
        """Return whether the topic of this offset was deleted: it must not be returned to clients
        any more."""
        return is_stale(self.topics, self.deletions.entries, group_id, at, value)

    # -- life cycle of groups

    def adopt(self, group: LiveGroup) -> None:
        """Make `group` the live group of its name."""
        self._incarnations += 1
        group.incarnation = self._incarnations
        self.groups[group.group_id] = group

    def transition(self, group: LiveGroup, event: GroupEvent, now: Now) -> None:
        """Change the group's state and cancel its timers that are not allowed in the new one."""
        group.transition(event, now.wall_ms)
        for kind in GROUP_TIMERS:
            if group.state not in TIMER_STATES[kind]:
                self.cancel_group_timer(kind, group)

    def drop(self, group: LiveGroup) -> None:
        """Remove a live group with all of its timers."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        for kind in GROUP_TIMERS:
            self.cancel_group_timer(kind, group)
        for member_id in group.members:
            self.cancel_session(group, member_id)
        for member_id in group.pending:
            self.timers.cancel(_key(TimerKind.PENDING_MEMBER, group, member_id))

    def forget_if_idle(self, group: LiveGroup) -> None:
        """Remove a live group without a record, members and pending member ids."""
        if not group.members and not group.pending and group.group_id not in self.appended.groups:
            self.drop(group)

    # -- timers of a group

    def touch(self, group: LiveGroup, member: LiveMember, now: Now) -> None:
        """Restart the member's session after one of its requests."""
        self.set_session(group, member.member_id, now, member.session_timeout_ms)

    def set_session(self, group: LiveGroup, member_id: str, now: Now, timeout_ms: int) -> None:
        """Let the member's session end after `timeout_ms`."""
        key = TimerKey(TimerKind.SESSION, group.group_id, group.incarnation, member_id)
        self.timers.set(key, now.monotonic_ms + timeout_ms)

    def cancel_session(self, group: LiveGroup, member_id: str) -> None:
        self.timers.cancel(_key(TimerKind.SESSION, group, member_id))

    def set_group_timer(self, kind: TimerKind, group: LiveGroup, now: Now, delay_ms: int) -> None:
        self.timers.set(_key(kind, group), now.monotonic_ms + delay_ms)

    def cancel_group_timer(self, kind: TimerKind, group: LiveGroup) -> None:
        self.timers.cancel(_key(kind, group))

    def add_pending(self, group: LiveGroup, member_id: str, now: Now, timeout_ms: int) -> None:
        """Reserve `member_id`, which was given out with MEMBER_ID_REQUIRED, for `timeout_ms`."""
        group.pending.add(member_id)
        key = _key(TimerKind.PENDING_MEMBER, group, member_id)
        self.timers.set(key, now.monotonic_ms + timeout_ms)

    def remove_pending(self, group: LiveGroup, member_id: str) -> None:
        """End the reservation of `member_id`, if there is one."""
        group.pending.discard(member_id)
        self.timers.cancel(_key(TimerKind.PENDING_MEMBER, group, member_id))


def _key(kind: TimerKind, group: LiveGroup, member_id: str = "") -> TimerKey:
    return TimerKey(kind, group.group_id, group.incarnation, member_id)


def membership_error(
    group: LiveGroup | None, member_id: str, group_instance_id: str | None
) -> ErrorCode | None:
    """Return the error for a request with this member's identity; None if the identity is valid.

    FENCED_INSTANCE_ID: another member id has taken over the instance id of this static member. Two
    processes share an instance id, and the older one must stop.
    """
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group_instance_id is not None:
        holder = group.static_members.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
