"""Inputs and decisions of a coordinator's shard.

A call of `decide_*` returns a `Decision`: records to append, the caller's reply, and answers to
*other* callers whose waiting ends. The runtime appends the records, passes them to `Shard.apply`,
and sends the reply when they are committed. Answers and effects do not depend on the records and
are carried out at once.

Some decisions are only half done until their records are committed. They carry an event, which the
runtime returns to the shard once it knows the outcome of the append.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from protocol.errors import ErrorCode
from protocol.schema import Response

RecordT = TypeVar("RecordT")
EventT = TypeVar("EventT")


class Now(NamedTuple):
    """Both clocks: monotonic for timeouts, wall clock for record contents."""

    monotonic_ms: float
    wall_ms: int


class Answer(NamedTuple):
    """A response for a waiting caller, identified by its ticket."""

    ticket: int
    response: Response


FailedReply: TypeAlias = Callable[[ErrorCode], Response]


@dataclass(slots=True)
class Decision(Generic[RecordT, EventT]):
    """Result of one call of a shard. Each coordinator has a subclass for its records and events:
    an instance of a subscripted alias would take longer to make.

    - `reply`: None if the caller has to wait for an Answer, or without a caller, as with timers.
    - `effects`: requests to the coordinator that owns the shard, such as to write markers.
    - `on_failure`: makes the reply for a failed append. Its error code is already translated for
      clients of a coordinator. Without records, the decision relies on earlier appends: its reply
      waits until those are committed.
    """

    reply: Response | None = None
    records: list[RecordT] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    event: EventT | None = None
    on_failure: FailedReply | None = None


AnyDecision: TypeAlias = Decision[Any, Any]
