"""The base class of data checks, which compare the replicas of one partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from audit.decoding.batches import BatchIdentity
from audit.findings.finding import Complaint, Severity
from audit.inputs.replicas import ReplicaFiles
from audit.planning.partitions import PartitionWork


class Replica:
    """The content of one replica."""

    def __init__(self, files: ReplicaFiles) -> None:
        self.files = files
        self.batches: dict[int, BatchIdentity] = {}
        self.values: dict[int, int] = {}
        """Maps an offset to the value that a client wrote there."""
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
        """The known start of the log.

        Deleted records may remain in segments and checkpoints for a while.
        """
        epochs = self.files.epochs
        first = epochs[0][1] if epochs and not self.files.at_rest else 0
        return max(self.start_offset, self.files.log_start, first)

    def lacks(self, offset: int) -> bool:
        """Return whether the log lacks a batch at the offset, and is not just an older copy."""
        return offset not in self.batches and (self.files.at_rest or offset < self.end_offset)

    @property
    def end(self) -> tuple[int, int]:
        """The last epoch and the end offset, which an election compares."""
        last = max(self.batches, default=None)
        return (-1 if last is None else self.batches[last].epoch, self.end_offset)


class PartitionView(NamedTuple):
    """The replicas of a partition for its checks.

    `reference` is the leader's replica, or else the one with the highest epoch and end offset;
    clients read its log.
    """

    work: PartitionWork
    replicas: Sequence[Replica]
    reference: Replica


class DataCheck(Protocol):
    """A check of one partition's replicas.

    The caller adds topic and partition to its complaints.
    """

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]: ...
