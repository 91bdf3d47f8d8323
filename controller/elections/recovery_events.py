"""Events of unclean recovery, and the effects that its state machine returns for them.

Events may arrive in any order and at any time. Each step returns all that its caller has to do, so
no method has to be called before or after another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from controller.decision import ControllerView
from controller.elections.recovery_questions import PartitionKey, Question
from controller.elections.recovery_requests import RecoveryOutcome, RecoveryRequest
from protocol.messages.get_replica_log_info import GetReplicaLogInfoResponse
from protocol.metadata import PartitionChangeRecord
from protocol.schema import MetadataRecord


class Decided(NamedTuple):
    """The outcome of one partition of a request, to report once the appended records are
    committed."""

    request: RecoveryRequest
    partition: PartitionKey
    outcome: RecoveryOutcome


class Activated(NamedTuple):
    """This controller has become active: nothing is known, and all partitions are examined."""


class Deactivated(NamedTuple):
    """This controller is no longer active. Its caller has to fail the waiting requests."""


class Appended(NamedTuple):
    """Records were appended and replayed; the view of the next `Due` includes them."""

    records: Iterable[MetadataRecord]


class Committed(NamedTuple):
    """Outcomes of an earlier step are committed."""

    decided: Iterable[Decided]


class Requested(NamedTuple):
    """An operator requests elections by the longest log, regardless of configuration."""

    request: RecoveryRequest


class Withdrawn(NamedTuple):
    """The caller of a request no longer waits; the request elects nothing later."""

    request: RecoveryRequest


class Answered(NamedTuple):
    """A broker has answered a query."""

    question: Question
    response: GetReplicaLogInfoResponse
    view: ControllerView


class Unanswered(NamedTuple):
    """No answer will come: closed port, lost connection, or a broker without the API."""

    question: Question


class Due(NamedTuple):
    """The time of `Effects.due_ms` has come."""

    view: ControllerView


Event: TypeAlias = (
    Activated
    | Deactivated
    | Appended
    | Committed
    | Requested
    | Withdrawn
    | Answered
    | Unanswered
    | Due
)


class Effects(NamedTuple):
    """The work of the caller after a step.

    Attributes:
        records: elections to append. If the append is refused, the next `Due` proposes them again.
        questions: queries to send to brokers now; each ends in `Answered` or `Unanswered`.
        complete: requests whose callers get their outcomes now.
        decided: outcomes to return in `Committed`, once everything appended so far is committed.
        idle: brokers without further queries; their connections can be closed.
        due_ms: monotonic time of the next `Due`; None until another event.
    """

    records: tuple[PartitionChangeRecord, ...] = ()
    questions: tuple[Question, ...] = ()
    complete: tuple[RecoveryRequest, ...] = ()
    decided: tuple[Decided, ...] = ()
    idle: tuple[int, ...] = ()
    due_ms: float | None = None


NO_EFFECTS = Effects()
