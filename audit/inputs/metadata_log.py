"""Metadata logs: their files, their start and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """One segment file. `size_bytes` is its size when the log was listed."""

    path: str
    base_offset: int
    size_bytes: int


class Snapshot(NamedTuple):
    """One snapshot file: the cluster as of `end_offset` (exclusive)."""

    path: str
    end_offset: int
    epoch: int


class MetadataLog(NamedTuple):
    """One copy of the metadata log. `node_id` is None without a meta.properties."""

    path: str
    node_id: int | None
    cluster_id: str | None
    directory_id: str | None
    segments: tuple[Segment, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def name(self) -> str:
        """The name of this log in findings."""
        return self.path if self.node_id is None else f"node {self.node_id}"

    @property
    def start_offset(self) -> int:
        """The first offset that is in the log itself, or that a snapshot covers."""
        starts = [s.base_offset for s in self.segments] or [s.end_offset for s in self.snapshots]
        return min(starts, default=0)


class FileRange(NamedTuple):
    """Bytes of one file; both ends are boundaries of batches (`end` None: the file's end).

    from_offset, below_offset: batches outside belong to other ranges.
    """

    log: str
    node: int | None
    path: str
    snapshot_offset: int | None
    start: int = 0
    end: int | None = None
    from_offset: int | None = None
    below_offset: int | None = None


class LogEnd(NamedTuple):
    """The end of one copy of the log: the offset after its last batch, and that batch's epoch."""

    end_offset: int
    epoch: int


def overlapping(segments: Sequence[Segment], start: int, end: int | None) -> tuple[Segment, ...]:
    """Return the segments that may have offsets from `start` on, below `end` if it is given."""
    chosen = []
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if (end is None or segment.base_offset < end) and (following is None or following > start):
            chosen.append(segment)
    return tuple(chosen)
