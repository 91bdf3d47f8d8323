"""Checks of the brokers' logs: one partition's replicas beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from audit.decoding.batches import BatchIdentity
from audit.findings.finding import Complaint, Severity
from audit.inputs.replicas import ReplicaFiles
from audit.planning.partitions import PartitionWork


class Replica:
    """What one copy holds."""

    def __init__(self, files: ReplicaFiles) -> None:
        self.files = files
        self.batches: dict[int, BatchIdentity] = {}
        self.values: dict[int, int] = {}
        """Offset to the value that a client put there."""
        self.damage: list[Complaint] = []

    @property
    def broker(self) -> int:
        return self.files.broker

    @property
    def start_offset(self) -> int:
        return min(self.batches, default=self.files.segments[0].base_offset)

    @property
    def end_offset(self) -> int:
        last = self.files.segments[-1].base_offset
        return max((batch.next_offset for batch in self.batches.values()), default=last)

    @property
    def log_start(self) -> int:
        """Where the log begins as far as it can be known: segments and checkpoints keep what was
        deleted for a while."""
        epochs = self.files.epochs
        first = epochs[0][1] if epochs and not self.files.at_rest else 0
        return max(self.start_offset, self.files.log_start, first)

    def lacks(self, offset: int) -> bool:
        """Whether the log has no batch at the offset, and is not merely a copy from before it."""
        return offset not in self.batches and (self.files.at_rest or offset < self.end_offset)

    @property
    def end(self) -> tuple[int, int]:
        """Last epoch and end offset: what an election compares."""
        last = max(self.batches, default=None)
        return (-1 if last is None else self.batches[last].epoch, self.end_offset)


class PartitionView(NamedTuple):
    """What checks of a partition look at. `reference` is the leader's copy, or the best there is;
    its log is what clients read."""

    work: PartitionWork
    replicas: Sequence[Replica]
    reference: Replica


class DataCheck:
    """A check of one partition's replicas. What it says of them gets their topic and partition."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        return ()
