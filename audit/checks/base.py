"""Protocols of replay checks: one rule per file, with hooks at fixed points of the replay.

There is one protocol for each hook. A check inherits those of the hooks that it has, and the replay
calls only these. A hook yields complaints, and the replay adds their position in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from audit.decoding.batches import Batch
from audit.findings.finding import Complaint, Severity
from audit.state.cluster import BrokerState, ClusterState, PartitionState
from audit.state.elections import BrokerEvent, Election
from audit.state.shapes import ShapeKey


class Facts(NamedTuple):
    """Cluster settings that a rule about a partition's shape needs."""

    effective_min_isr: int
    elr_enabled: bool


class BatchContext(NamedTuple):
    """A batch, with the offset and epoch expected from the log before it; None if unknown."""

    batch: Batch
    path: str
    expected_offset: int | None
    last_epoch: int | None


class DamageContext(NamedTuple):
    """Bytes of a file that are not a batch.

    `at_end`: no readable batch follows in the whole log.
    """

    kind: str
    path: str
    position: int
    size_bytes: int
    at_end: bool
    after_offset: int


class Replacement(NamedTuple):
    """A PartitionRecord for a partition that exists."""

    partition: PartitionState
    before: ShapeKey
    after: ShapeKey
    leader_epoch: int
    partition_epoch: int


class BrokerChange(NamedTuple):
    """A broker before and after a record. `epoch` is the epoch in the record."""

    id: int
    event: BrokerEvent
    before: BrokerState | None
    after: BrokerState | None
    epoch: int


class BatchEnd(NamedTuple):
    """The cluster at the end of a batch or metadata transaction.

    `grown` are partitions whose ISR gained members, `fenced` the brokers fenced in it.
    """

    cluster: ClusterState
    grown: Sequence[PartitionState]
    fenced: frozenset[int]


class Difference(NamedTuple):
    """A difference between a snapshot and the replay of the records before it."""

    what: str
    replayed: object
    snapshot: object
    topic: str | None = None
    partition: int | None = None


class Check(Protocol):
    """The name of a check, and the severity of its findings."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR


@runtime_checkable
class BatchCheck(Check, Protocol):
    """A check of each batch of a log."""

    def on_batch(self, context: BatchContext) -> Iterable[Complaint]: ...


@runtime_checkable
class MissingCheck(Check, Protocol):
    """A check of offsets that a snapshot contains and the log before it lacks."""

    def on_missing(self, first: int, last: int) -> Iterable[Complaint]: ...


@runtime_checkable
class StartCheck(Check, Protocol):
    """A check of a log whose beginning neither a segment nor a snapshot contains."""

    def on_unknown_start(self, start_offset: int) -> Iterable[Complaint]: ...


@runtime_checkable
class BadSnapshotCheck(Check, Protocol):
    """A check of snapshots that cannot be loaded."""

    def on_bad_snapshot(self, problem: str) -> Iterable[Complaint]: ...


@runtime_checkable
class DamageCheck(Check, Protocol):
    """A check of bytes that are not a batch."""

    def on_damage(self, context: DamageContext) -> Iterable[Complaint]: ...


@runtime_checkable
class RecordErrorCheck(Check, Protocol):
    """A check of records that cannot be applied.

    orphan: the record was decoded, but refers to unknown objects.
    """

    def on_record_error(self, reason: str, orphan: bool) -> Iterable[Complaint]: ...


@runtime_checkable
class ShapeCheck(Check, Protocol):
    """A check of partitions without their epochs.

    Its result is cached for equal transitions, so it must depend on the arguments alone.
    """

    def on_shape(self, before: ShapeKey | None, after: ShapeKey, facts: Facts) -> str | None:
        """Return the broken rule as text; None if the shape is valid."""
        ...


@runtime_checkable
class ReplacementCheck(Check, Protocol):
    """A check of PartitionRecords of partitions that exist."""

    def on_replacement(self, replacement: Replacement) -> Iterable[Complaint]: ...


@runtime_checkable
class ElectionCheck(Check, Protocol):
    """A check of elections."""

    def on_election(self, election: Election) -> Iterable[Complaint]: ...


@runtime_checkable
class BrokerCheck(Check, Protocol):
    """A check of records about brokers."""

    def on_broker(self, change: BrokerChange) -> Iterable[Complaint]: ...


@runtime_checkable
class BatchEndCheck(Check, Protocol):
    """A check of the state at the end of a batch or metadata transaction."""

    def on_batch_end(self, end: BatchEnd) -> Iterable[Complaint]: ...


@runtime_checkable
class SnapshotCheck(Check, Protocol):
    """A check of differences between a snapshot and the replay."""

    def on_snapshot(self, differences: Sequence[Difference]) -> Iterable[Complaint]: ...


class CheckTable:
    """The checks of a replay by hook; those of one hook in the order of `checks`."""

    __slots__ = (
        "batch_ends", "batches", "brokers", "damage", "elections", "missing", "record_errors",
        "replacements", "shapes", "snapshots", "starts", "unreadable_snapshots",
    )  # fmt: skip

    def __init__(self, checks: Sequence[Check]) -> None:
        self.batches = [one for one in checks if isinstance(one, BatchCheck)]
        self.missing = [one for one in checks if isinstance(one, MissingCheck)]
        self.starts = [one for one in checks if isinstance(one, StartCheck)]
        self.unreadable_snapshots = [one for one in checks if isinstance(one, BadSnapshotCheck)]
        self.damage = [one for one in checks if isinstance(one, DamageCheck)]
        self.record_errors = [one for one in checks if isinstance(one, RecordErrorCheck)]
        self.shapes = [one for one in checks if isinstance(one, ShapeCheck)]
        self.replacements = [one for one in checks if isinstance(one, ReplacementCheck)]
        self.elections = [one for one in checks if isinstance(one, ElectionCheck)]
        self.brokers = [one for one in checks if isinstance(one, BrokerCheck)]
        self.batch_ends = [one for one in checks if isinstance(one, BatchEndCheck)]
        self.snapshots = [one for one in checks if isinstance(one, SnapshotCheck)]
