"""The check of a replay: one rule, in one file, asked at fixed points.

A check overrides the hooks it needs; the replay calls no others. A hook yields complaints and the
replay adds where in the log it is. `on_shape` must depend on its arguments alone: its answer is
kept for equal transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from audit.decoding.batches import Batch
from audit.findings.finding import Complaint, Severity
from audit.state.cluster import BrokerState, ClusterState, PartitionState
from audit.state.elections import BrokerEvent, Election
from audit.state.shapes import ShapeKey


class Facts(NamedTuple):
    """Facts beside the partition that a rule about its shape may look at."""

    effective_min_isr: int
    elr_enabled: bool


class BatchContext(NamedTuple):
    """A batch, and what is to be expected by the log before it; None where that is unknown."""

    batch: Batch
    path: str
    expected_offset: int | None
    last_epoch: int | None


class DamageContext(NamedTuple):
    """Bytes of a file that are no batch. `at_end`: nothing readable follows in the whole log."""

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
    """A broker before and after a record. `epoch` is the one that the record names."""

    id: int
    event: BrokerEvent
    before: BrokerState | None
    after: BrokerState | None
    epoch: int


class BatchEnd(NamedTuple):
    """The cluster where a batch or metadata transaction ends.

    `grown` are partitions whose ISR got new members, `fenced` brokers that were fenced in it.
    """

    cluster: ClusterState
    grown: Sequence[PartitionState]
    fenced: frozenset[int]


class Difference(NamedTuple):
    """One thing that a snapshot says otherwise than the records before it."""

    what: str
    replayed: object
    snapshot: object
    topic: str | None = None
    partition: int | None = None


class Check:
    """The hooks, all of them without effect."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR

    def on_batch(self, context: BatchContext) -> Iterable[Complaint]:
        return ()

    def on_missing(self, first: int, last: int) -> Iterable[Complaint]:
        """Offsets that a snapshot contains and the log before it lacks."""
        return ()

    def on_unknown_start(self, start_offset: int) -> Iterable[Complaint]:
        return ()

    def on_bad_snapshot(self, problem: str) -> Iterable[Complaint]:
        return ()

    def on_damage(self, context: DamageContext) -> Iterable[Complaint]:
        return ()

    def on_record_error(self, reason: str, orphan: bool) -> Iterable[Complaint]:
        return ()

    def on_shape(self, before: ShapeKey | None, after: ShapeKey, facts: Facts) -> str | None:
        return None

    def on_replacement(self, replacement: Replacement) -> Iterable[Complaint]:
        return ()

    def on_election(self, election: Election) -> Iterable[Complaint]:
        return ()

    def on_broker(self, change: BrokerChange) -> Iterable[Complaint]:
        return ()

    def on_batch_end(self, end: BatchEnd) -> Iterable[Complaint]:
        return ()

    def on_snapshot(self, differences: Sequence[Difference]) -> Iterable[Complaint]:
        return ()
