"""One partition's replicas, read and judged: the work of one task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from audit.decoding.batches import Batch, Damage, DamageKind, Mark, split, walk
from audit.findings.finding import Complaint
from audit.findings.sink import Sink
from audit.reading.client_history import Sent
from audit.reading.logs import Segment
from audit.reading.replicas import ReplicaFiles
from protocol.errors import ApiError, ProtocolError

VALUE_DIGITS_MAX = 24


class PartitionWork(NamedTuple):
    """What a task needs of a partition.

    leader: by the metadata, -1 if there is none or it is not known; leader_epochs: epoch to leader
    as far as the metadata says it, None where that is not known; compacted: cleaning rewrites
    batches, so they are not compared.
    """

    topic: str
    partition: int
    replicas: tuple[ReplicaFiles, ...]
    leader: int
    leader_epoch: int | None
    leader_epochs: dict[int, int] | None
    compacted: bool
    sent: tuple[Sent, ...]


class Replica:
    """What one copy holds."""

    def __init__(self, files: ReplicaFiles) -> None:
        self.files = files
        self.marks: dict[int, Mark] = {}
        self.values: dict[int, int] = {}
        """Offset to the value that a client put there."""
        self.damage: list[Complaint] = []

    @property
    def broker(self) -> int:
        return self.files.broker

    @property
    def start_offset(self) -> int:
        return min(self.marks, default=self.files.segments[0].base_offset)

    @property
    def end_offset(self) -> int:
        last = self.files.segments[-1].base_offset
        return max((mark.next_offset for mark in self.marks.values()), default=last)

    @property
    def log_start(self) -> int:
        """Where the log begins as far as it can be known: segments and checkpoints keep what was
        deleted for a while."""
        epochs = self.files.epochs
        first = epochs[0][1] if epochs and not self.files.at_rest else 0
        return max(self.start_offset, self.files.log_start, first)

    def lacks(self, offset: int) -> bool:
        """Whether the log has no batch at the offset, and is not merely a copy from before it."""
        return offset not in self.marks and (self.files.at_rest or offset < self.end_offset)

    @property
    def end(self) -> tuple[int, int]:
        """Last epoch and end offset: what an election compares."""
        last = max(self.marks, default=None)
        return (-1 if last is None else self.marks[last].epoch, self.end_offset)


class PartitionView(NamedTuple):
    """What checks of a partition look at. `reference` is the leader's copy, or the best there is;
    its log is what clients read."""

    work: PartitionWork
    replicas: Sequence[Replica]
    reference: Replica


def audit_partition(work: PartitionWork, sink: Sink) -> None:
    """Read all replicas, ask all checks."""
    from audit.checks import DATA_CHECKS

    replicas = [read_replica(files, values=bool(work.sent)) for files in work.replicas]
    reference = next((r for r in replicas if r.broker == work.leader), None)
    view = PartitionView(work, replicas, reference or max(replicas, key=lambda r: r.end))
    for make in DATA_CHECKS:
        check = make()
        for complaint in check.on_partition(view):
            here = complaint._replace(topic=work.topic, partition=work.partition)
            sink.finding(here.finding(check.name, check.severity, -1, -1))
    body = {"topic": work.topic, "partition": work.partition, "replicas": len(replicas)}
    sink.event("data", 0, -1, {**body, "batches": sum(len(r.marks) for r in replicas)})


def read_replica(files: ReplicaFiles, *, values: bool) -> Replica:
    """`values` asks for what clients wrote, too."""
    replica = Replica(files)
    last = files.segments[-1]
    for segment in files.segments:
        for found in _walk_while_it_is_there(files, segment):
            if not isinstance(found, Batch):
                torn = found.kind == DamageKind.CUT and segment is last
                if not torn:  # a cut tail is what a crash leaves, and recovery removes
                    replica.damage.append(
                        Complaint(
                            f"{found.size_bytes} bytes from position {found.position} of "
                            f"{segment.path} on are no batch",
                            offset=replica.end_offset,
                        )
                    )
            elif not found.crc_ok:
                base = found.header.base_offset
                replica.damage.append(
                    Complaint(
                        f"the batch at offset {base} in {segment.path} does not have the CRC it "
                        "says",
                        offset=base,
                    )
                )
            else:
                replica.marks[found.header.base_offset] = found.mark
                if values and not found.header.is_control:
                    replica.values.update(_values(found))
    return replica


def _walk_while_it_is_there(files: ReplicaFiles, segment: Segment) -> Iterator[Batch | Damage]:
    """A running broker deletes old segments, also those that it had when they were listed."""
    try:
        yield from walk(segment.path)
    except FileNotFoundError:
        if not Path(files.path).is_dir():
            raise


def _values(batch: Batch) -> Iterator[tuple[int, int]]:
    try:
        for offset, _, _, value in split(batch):
            digits, bar, _ = (value or b"")[:VALUE_DIGITS_MAX].partition(b"|")
            if bar and digits.isdigit():
                yield offset, int(digits)
    except (ProtocolError, ApiError):
        return  # told by the check of records that cannot be read, where metadata is concerned
