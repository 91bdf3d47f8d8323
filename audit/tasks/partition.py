"""The audit of one partition's replicas: reads them and calls the data checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit.checks import DATA_CHECKS
from audit.checks.data.base import PartitionView, Replica
from audit.decoding.batches import Batch, Damage, DamageKind, split
from audit.findings.finding import Complaint
from audit.findings.sink import Sink
from audit.inputs.metadata_log import Segment
from audit.inputs.replicas import ReplicaFiles
from audit.planning.partitions import PartitionWork
from audit.reading.segments import walk
from protocol.errors import ApiError, ProtocolError

VALUE_DIGITS_MAX = 24


def audit_partition(work: PartitionWork, sink: Sink) -> None:
    """Read all replicas and run all data checks."""
    replicas = [read_replica(files, values=bool(work.sent)) for files in work.replicas]
    reference = next((r for r in replicas if r.broker == work.leader), None)
    view = PartitionView(work, replicas, reference or max(replicas, key=lambda r: r.end))
    for make in DATA_CHECKS:
        check = make()
        for complaint in check.on_partition(view):
            here = complaint._replace(topic=work.topic, partition=work.partition)
            sink.finding(here.finding(check.name, check.severity, -1, -1))
    body = {"topic": work.topic, "partition": work.partition, "replicas": len(replicas)}
    sink.event("data", 0, -1, {**body, "batches": sum(len(r.batches) for r in replicas)})


def read_replica(files: ReplicaFiles, *, values: bool) -> Replica:
    """Read a replica; `values` includes the values that clients wrote."""
    replica = Replica(files)
    last = files.segments[-1]
    for segment in files.segments:
        for found in _walk_while_it_is_there(files, segment):
            if not isinstance(found, Batch):
                torn = found.kind == DamageKind.CUT and segment is last
                if not torn:  # a crash leaves an incomplete tail, which recovery removes
                    replica.damage.append(
                        Complaint(
                            f"{found.size_bytes} bytes from position {found.position} of "
                            f"{segment.path} on are not a batch",
                            offset=replica.end_offset,
                        )
                    )
            elif not found.crc_ok:
                base = found.header.base_offset
                replica.damage.append(
                    Complaint(
                        f"the batch at offset {base} in {segment.path} has a wrong CRC",
                        offset=base,
                    )
                )
            else:
                replica.batches[found.header.base_offset] = found.identity
                if values and not found.header.is_control:
                    replica.values.update(_values(found))
    return replica


def _walk_while_it_is_there(files: ReplicaFiles, segment: Segment) -> Iterator[Batch | Damage]:
    """Yield the batches of a segment, or none if a running broker has deleted it since the
    listing.
    """
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
        return  # no promise requires that clients' records can be split
