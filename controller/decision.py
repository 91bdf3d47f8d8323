"""Controller operations as pure decisions over a read-only view of the metadata.

A `decide_*` function gets a `ControllerView` and a request and returns a `Decision`: the metadata
records of the change, and the reply to send once they are committed. It changes nothing. The writer
replays the records on its working image, appends them to the quorum's log and sends the reply at
commit.

Two decisions over one view are equal; tests rely on it. Therefore decisions draw random numbers
from `fresh_rng`, which starts from the same seed on every call.

An operation that fails as a whole raises `ApiError`. If only a part fails, the reply contains the
error of that part.
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
    """A part of an operation that would delay all others if it were one batch.

    records: a batch that leaves a valid state; the log may end after it. then: decides the next
    part, over a new view, after other operations had their turn.
    """

    records: tuple[MetadataRecord, ...]
    then: Decide[R]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """All inputs of a decision.

    image: the working image (committed records and those that this controller has appended).
    next_offset: log offset of the decision's first record. now_ms: wall clock. monotonic_ms: clock
    of the session timeouts. report_epochs: partition epochs that reports of local logs have set.
    directory_moves: earlier directories of replicas.
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

    @property
    def metadata_version(self) -> int:
        """The finalised level of metadata.version, or the oldest supported level until one is
        written."""
        level = self.image.metadata_version
        return MINIMUM_METADATA_VERSION.level if level is None else level

    @property
    def elr_enabled(self) -> bool:
        return self.image.elr_enabled

    def expired_brokers(self) -> frozenset[int]:
        """Return the unfenced brokers whose session has expired."""
        return self.heartbeats.expired(self.monotonic_ms, self.settings.session_timeouts)


Decide: TypeAlias = Callable[[ControllerView], Decision[R] | Step[R]]
"""An operation, or the rest of one."""


def check_record_count(count: int) -> None:
    """Check that an operation fits into one atomic batch.

    Raises:
        ApiError: POLICY_VIOLATION, more than `RECORDS_PER_OPERATION_MAX` records.
    """
    if count > RECORDS_PER_OPERATION_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the operation would write {count} metadata records; at most "
            f"{RECORDS_PER_OPERATION_MAX} are allowed in one",
        )
