"""A controller operation: a decision over a read-only view.

A `decide_*` function gets a `ControllerView` and a request and returns a `Decision`: the metadata
records that make the change, and the reply that is sent once they are committed. It changes
nothing. The driver replays the records on its working image, appends them to the quorum's log and
sends the reply at commit. Deciding twice over one view gives equal decisions, which tests rely on;
therefore randomness comes from `fresh_rng`, which starts at the same place on every call.

An operation that fails as a whole raises `ApiError`; what fails in part says so in its reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from controller.directory_moves import DirectoryMoves
from controller.heartbeats import HeartbeatView
from controller.report_epochs import ReportEpochs
from controller.settings import ControllerSettings
from metalog.image.features import MINIMUM_METADATA_VERSION
from metalog.image.values import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.schema import MetadataRecord

if TYPE_CHECKING:
    from random import Random

R = TypeVar("R")

RECORDS_PER_OPERATION_MAX = 10_000
"""A request that would write more is refused (KAFKA-14996): one operation is one atomic batch."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to write, in order, and the reply to send when they are committed."""

    records: tuple[MetadataRecord, ...]
    reply: R


@dataclass(frozen=True, slots=True)
class Step(Generic[R]):
    """A part of an operation that would hold up all others if it were one batch.

    records: a batch that leaves a state of its own; the log may end behind it. then: decides what
    follows, over the view as it is once the others have had their turn.
    """

    records: tuple[MetadataRecord, ...]
    then: Decide[R]


def unknown_voters() -> None:
    """Return None: the quorum's voters are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """Everything a decision may look at.

    image: the working image (committed, plus what this controller has appended). next_offset: log
    offset that the decision's first record will get. now_ms: wall clock. monotonic_ms: clock of
    the session timeouts. report_epochs: which partition epochs reports of local logs have made.
    directory_moves: in which directories replicas were before. voters: returns the ids of the
    quorum's voters, None where they are not known.
    """

    image: MetadataImage
    next_offset: int
    now_ms: int
    monotonic_ms: float
    heartbeats: HeartbeatView
    report_epochs: ReportEpochs
    settings: ControllerSettings
    fresh_rng: Callable[[], Random]
    directory_moves: DirectoryMoves = field(default_factory=DirectoryMoves)
    voters: Callable[[], frozenset[int] | None] = unknown_voters

    @property
    def metadata_version(self) -> int:
        """The finalised level; the oldest supported one while none is written."""
        level = self.image.metadata_version
        return MINIMUM_METADATA_VERSION.level if level is None else level

    @property
    def elr_enabled(self) -> bool:
        return self.image.elr_enabled

    def expired_brokers(self) -> frozenset[int]:
        """Unfenced brokers that have not been heard of for too long."""
        return self.heartbeats.expired(self.monotonic_ms, self.settings.session_timeouts)


Decide: TypeAlias = Callable[[ControllerView], Decision[R] | Step[R]]
"""An operation, or what is left of one."""


def check_record_count(count: int) -> None:
    """Refuse an operation that writes too many records for one atomic batch."""
    if count > RECORDS_PER_OPERATION_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the operation would write {count} metadata records; at most "
            f"{RECORDS_PER_OPERATION_MAX} are allowed in one",
        )
