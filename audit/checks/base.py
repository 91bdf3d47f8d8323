"""The base class of replay checks: one rule per file, with hooks at fixed points of the replay.

A check overrides the hooks that it needs; the replay calls only these. A hook yields complaints,
and the replay adds their position in the log. `on_shape` must depend on its arguments alone,
because its result is cached for equal transitions.
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


class Check:
    """A check; all hooks of this base class do nothing."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR

    def on_batch(self, context: BatchContext) -> Iterable[Complaint]:
        return ()

    def on_missing(self, first: int, last: int) -> Iterable[Complaint]:
        """Check offsets that a snapshot contains and the log before it lacks."""
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
