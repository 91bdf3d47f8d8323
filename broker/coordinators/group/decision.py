"""Inputs and decisions of the group core.

A call of `decide_*` returns a `Decision`: records to append, the caller's reply, and answers to
*other* callers that were waiting and need wait no longer. The coordinator appends the records,
hands them to `GroupShard.apply`, and sends the reply when they are committed. Answers are not tied
to the records and go out at once.

Some decisions are only half done until their records are committed (a leader's assignment). They
carry an `AppendEvent`, which the coordinator brings back when it knows how the append ended.
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
    """Both clocks: monotonic for timeouts, wall for what is written into records."""

    monotonic_ms: float
    wall_ms: int


class Answer(NamedTuple):
    """A response for a caller that was told to wait, by its ticket."""

    ticket: int
    response: Response


class AssignmentStored(NamedTuple):
    """The leader's SyncGroup of this generation was appended. `incarnation` is that of the group
    object: one of the same name that is made later has generations of its own."""

    group_id: str
    incarnation: int
    generation: int
    assignments: dict[str, bytes]


class StaticMemberReplaced(NamedTuple):
    """`member`, a copy of `replaced` under a new member id, was appended to a stable group.
    `replaced` is kept for the case that the append fails."""

    group_id: str
    replaced: LiveMember
    member_id: str


AppendEvent: TypeAlias = AssignmentStored | StaticMemberReplaced

FailedReply: TypeAlias = Callable[[ErrorCode], Response]


@dataclass(slots=True)
class Decision:
    """reply is None when the caller has to wait for an Answer (or when there is no caller, as with
    timers). on_failure makes the reply for an append that failed; the code it gets is already
    translated for clients of a coordinator. A decision that has it but no records relies on what
    was appended before: its reply waits until that is committed."""

    reply: Response | None = None
    records: list[ParsedRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    event: AppendEvent | None = None
    on_failure: FailedReply | None = None
