"""Snapshot files: `<end offset>-<epoch>.checkpoint`, as KRaft writes them (KIP-630).

A snapshot consists of batches with their own offsets from 0 on: a control batch with the header
(and, with kraft.version 1, the voter set), batches of metadata records, and a control batch with
the footer. It is written as `.part` and renamed when it is complete and flushed, so a file with the
final name is complete. The next start removes leftovers of a crash. A file without a footer is
damaged.

`bootstrap.checkpoint` has the same format and is in the log directory itself: in directories that
Kafka up to 4.3 formatted, it contains the first records that the first leader writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from metalog.image.snapshot import VersionedRecord
from metalog.quorum.batches import (
    Batch,
    build_kraft_batch,
    build_metadata_batch,
    kraft_version_record,
    read_batches,
    read_control_batches,
    snapshot_footer,
    snapshot_header,
    voter_set,
    voters_record,
)
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.core.voters import VoterSet
from protocol.batch.header import iter_checked
from protocol.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from protocol.errors import ApiError, ProtocolError
from protocol.schema import ControlRecord
from storage.files.port import Files

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
DAMAGED_SUFFIX = ".checkpoint.damaged"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
FIRST_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The snapshot that formatting writes, with the voters and the first records; it covers no record
of the log."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS_PER_BATCH = 256


class CorruptSnapshot(ProtocolError):
    """A snapshot file that is incomplete or not a snapshot."""


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Parse a snapshot's file name; None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else OffsetAndEpoch(int(match[1]), int(match[2]))


def list_snapshots(files: Files, directory: str) -> list[OffsetAndEpoch]:
    """Return the snapshots in the directory, oldest first."""
    found = map(parse_snapshot_name, files.listdir(directory))
    return sorted(snapshot_id for snapshot_id in found if snapshot_id is not None)


def remove_leftovers(files: Files, directory: str) -> None:
    """Remove what a crash left of snapshots being written or deleted."""
    for name in files.listdir(directory):
        if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
            files.unlink(f"{directory}/{name}")


def damage(files: Files, path: str, snapshot_id: OffsetAndEpoch) -> str | None:
    """Return the damage of a snapshot's file, None if it is intact. Raises OSError."""
    try:
        for _ in SnapshotReader.open(files, path, snapshot_id).check():
            pass
    except (ProtocolError, ApiError) as error:
        return str(error)
    return None


class DamagedSnapshot(NamedTuple):
    """A snapshot that cannot be used."""

    id: OffsetAndEpoch
    path: str
    why: str


def whole_snapshots(
    files: Files, directory: str
) -> tuple[list[OffsetAndEpoch], list[DamagedSnapshot]]:
    """Return the snapshots up to the newest intact one, and the damaged ones after it."""
    snapshots = list_snapshots(files, directory)
    damaged: list[DamagedSnapshot] = []
    while snapshots:
        newest = snapshots[-1]
        path = f"{directory}/{snapshot_name(newest)}"
        why = damage(files, path, newest)
        if why is None:
            break
        damaged.append(DamagedSnapshot(snapshots.pop(), path, why))
    return snapshots, damaged


def snapshot_parts(
    snapshot_id: OffsetAndEpoch,
    records: Iterable[VersionedRecord],
    *,
    last_contained_timestamp_ms: int,
    timestamp_ms: int,
    voters: VoterSet | None = None,
    kraft_version: int = 0,
) -> Iterator[bytes]:
    """Yield the file's bytes, batch by batch; each part takes little time to encode.

    Args:
        voters: written from kraft_version 1 on; None for the first snapshot of a node that joins an
            existing quorum.
        kraft_version: written from 1 on.
    """
    epoch = snapshot_id.epoch
    head: list[ControlRecord] = [snapshot_header(last_contained_timestamp_ms)]
    if kraft_version:
        head.append(kraft_version_record(kraft_version))
        if voters is not None:
            head.append(voters_record(voters))
    yield build_kraft_batch(head, 0, epoch=epoch, timestamp_ms=timestamp_ms)
    offset = len(head)
    batch: list[VersionedRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) == _RECORDS_PER_BATCH:
            yield build_metadata_batch(batch, offset, epoch=epoch, timestamp_ms=timestamp_ms)
            offset += len(batch)
            batch = []
    if batch:
        yield build_metadata_batch(batch, offset, epoch=epoch, timestamp_ms=timestamp_ms)
        offset += len(batch)
    yield build_kraft_batch([snapshot_footer()], offset, epoch=epoch, timestamp_ms=timestamp_ms)


def write_snapshot(files: Files, path: str, parts: Iterable[bytes]) -> None:
    """Write a small snapshot at once, durably, under its final name."""
    files.write_atomic(path, b"".join(parts))


class SnapshotReader:
    """An open snapshot: the header is read at once, the records on iteration.

    Raises:
        CorruptSnapshot: on construction or during iteration.
    """

    def __init__(self, data: bytes, snapshot_id: OffsetAndEpoch, path: str = "") -> None:
        self.id = snapshot_id
        self.size_bytes = len(data)
        self.voters: VoterSet | None = None
        self.kraft_version = 0
        self.path = path or snapshot_name(snapshot_id)
        self._data = data
        self.last_contained_timestamp_ms = self._read_header()

    @classmethod
    def open(cls, files: Files, path: str, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        return cls(files.read(path), snapshot_id, path)

    def batches(self) -> Iterator[Batch]:
        """Yield batches of metadata records in order, up to the footer."""
        whole = False
        for batch in self._all():
            if whole:
                raise self._corrupt("continues after its footer")
            if batch.records:
                yield batch
            whole = any(isinstance(record, SnapshotFooterRecord) for record in batch.control)
        if not whole:
            raise self._corrupt("has no footer")

    def check(self) -> Iterator[None]:
        """Check the whole file in steps: every CRC, and the footer at its end."""
        last: ControlRecord | None = None
        end = 0
        try:
            for header, position in iter_checked(self._data):
                end = position + header.size_bytes
                if header.is_control:
                    for batch in read_control_batches(self._data[position:end]):
                        last = batch.control[-1]
                else:
                    last = None
                yield
        except ProtocolError as error:
            raise self._corrupt(str(error)) from error
        if end != len(self._data) or not isinstance(last, SnapshotFooterRecord):
            raise self._corrupt("does not end with a footer")

    def records(self) -> Iterator[object]:
        for batch in self.batches():
            yield from batch.records

    def _all(self) -> Iterator[Batch]:
        try:
            yield from read_batches(self._data)
        except CorruptSnapshot:
            raise
        except ProtocolError as error:
            raise self._corrupt(str(error)) from error

    def _read_header(self) -> int:
        first = next(self._all(), None)
        if first is None or not first.control:
            raise self._corrupt("does not begin with a control batch")
        header = first.control[0]
        if not isinstance(header, SnapshotHeaderRecord):
            raise self._corrupt(f"begins with {type(header).__name__}")
        for record in first.control[1:]:
            if isinstance(record, KRaftVersionRecord):
                self.kraft_version = record.kraft_version
            elif isinstance(record, VotersRecord):
                self.voters = voter_set(record)
        return header.last_contained_log_timestamp

    def _corrupt(self, why: str) -> CorruptSnapshot:
        return CorruptSnapshot(f"corrupt snapshot {self.path}: {why}")
