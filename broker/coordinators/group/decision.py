"""Decisions of the group core: records of groups, and events that follow their append.

The module `broker.coordinators.runtime.decision` describes a decision's life.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from broker.coordinators.group.live_group import LiveMember
from broker.coordinators.group.records import ReplayedRecord
from broker.coordinators.runtime import decision


class AssignmentStored(NamedTuple):
    """Event: the leader's SyncGroup of this generation was appended. `incarnation` identifies the
    group object: a later group of the same name has generations of its own."""

    group_id: str
    incarnation: int
    generation: int
    assignments: dict[str, bytes]


class StaticMemberReplaced(NamedTuple):
    """Event: `member`, a copy of `replaced` under a new member id, was appended to a stable group.
    `replaced` is kept for the case that the append fails."""

    group_id: str
    replaced: LiveMember
    member_id: str


AppendEvent: TypeAlias = AssignmentStored | StaticMemberReplaced


class Decision(decision.Decision[ReplayedRecord, AppendEvent]):
    """Result of one call of the group core."""

    __slots__ = ()
