"""Inputs and decisions of the group core.

A call of `decide_*` returns a `Decision`: records to append, the caller's reply, and answers to
*other* callers whose waiting ends. The coordinator appends the records, passes them to
`GroupShard.apply`, and sends the reply when they are committed. Answers do not depend on the
records and are sent at once.

Some decisions are only half done until their records are committed (a leader's assignment). They
carry an `AppendEvent`, which the coordinator returns once it knows the outcome of the append.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from broker.coordinators.group.live_group import LiveMember
from broker.coordinators.group.records import ParsedRecord
from protocol.errors import ErrorCode
from protocol.schema import Response


class Now(NamedTuple):
    """Both clocks: monotonic for timeouts, wall clock for record contents."""

    monotonic_ms: float
    wall_ms: int


class Answer(NamedTuple):
    """A response for a waiting caller, identified by its ticket."""

    ticket: int
    response: Response


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

FailedReply: TypeAlias = Callable[[ErrorCode], Response]


@dataclass(slots=True)
class Decision:
    """Result of one call of the core.

    - `reply`: None if the caller has to wait for an Answer, or without a caller, as with timers.
    - `on_failure`: makes the reply for a failed append. Its error code is already translated for
      clients of a coordinator. Without records, the decision relies on earlier appends: its reply
      waits until those are committed.
    """

    reply: Response | None = None
    records: list[ParsedRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    event: AppendEvent | None = None
    on_failure: FailedReply | None = None
