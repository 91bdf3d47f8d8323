"""Which metadata logs lie below some folders: their segments, snapshots, node and cluster.

A log is a `__cluster_metadata-0` directory, of a controller or a broker, of Kraftbox or of Apache
Kafka. The folder above it holds `meta.properties`, which names node and cluster; a copy of the log
alone is accepted, too, and then has the number of its place in the list as its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

METADATA_DIRECTORY = "__cluster_metadata-0"
META_PROPERTIES = "meta.properties"

_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class UnreadableInput(Exception):
    """What was given cannot be audited; the message says what and why."""


class Segment(NamedTuple):
    """One segment file. `size_bytes` is what it had when the log was listed."""

    path: str
    base_offset: int
    size_bytes: int


class Snapshot(NamedTuple):
    """One snapshot file: the cluster as of `end_offset` (exclusive)."""

    path: str
    end_offset: int
    epoch: int


class MetadataLog(NamedTuple):
    """One copy of the metadata log. `node_id` is None when no meta.properties says it."""

    path: str
    node_id: int | None
    cluster_id: str | None
    directory_id: str | None
    segments: tuple[Segment, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def name(self) -> str:
        """How findings call this log."""
        return self.path if self.node_id is None else f"node {self.node_id}"

    @property
    def start_offset(self) -> int:
        """The first offset that may be read from the log itself or is covered by a snapshot."""
        starts = [s.base_offset for s in self.segments] or [s.end_offset for s in self.snapshots]
        return min(starts, default=0)


def find_logs(paths: Iterable[Path]) -> list[MetadataLog]:
    """Every metadata log at or below the given folders, each once, by path.

    Raises UnreadableInput for a path that is missing, holds no metadata log or one without files,
    and for logs of more than one cluster.
    """
    found: dict[str, MetadataLog] = {}
    for path in paths:
        if not path.exists():
            raise UnreadableInput(f"{path} does not exist")
        here = list(_directories(path))
        if not here:
            raise UnreadableInput(f"no {METADATA_DIRECTORY} directory at or below {path}")
        for directory in here:
            resolved = directory.resolve()
            found[str(resolved)] = read_listing(resolved)
    logs = [found[path] for path in sorted(found)]
    clusters = sorted({log.cluster_id for log in logs if log.cluster_id})
    if len(clusters) > 1:
        raise UnreadableInput(
            f"the logs are of {len(clusters)} clusters ({', '.join(clusters)}): audit one at a time"
        )
    empty = [log.path for log in logs if not log.segments and not log.snapshots]
    if empty:
        raise UnreadableInput(f"{empty[0]} holds neither segments nor snapshots")
    return logs


def read_listing(directory: Path) -> MetadataLog:
    """The files of one metadata log directory."""
    segments = []
    snapshots = []
    for child in sorted(directory.iterdir()):
        if match := _SEGMENT.fullmatch(child.name):
            segments.append(Segment(str(child), int(match[1]), child.stat().st_size))
        elif match := _SNAPSHOT.fullmatch(child.name):
            snapshots.append(Snapshot(str(child), int(match[1]), int(match[2])))
    meta = _properties(directory.parent / META_PROPERTIES)
    node = meta.get("node.id", "")
    return MetadataLog(
        path=str(directory),
        node_id=int(node) if node.isdigit() else None,
        cluster_id=meta.get("cluster.id"),
        directory_id=meta.get("directory.id"),
        segments=tuple(segments),
        snapshots=tuple(snapshots),
    )


def _directories(path: Path) -> Iterator[Path]:
    if path.is_dir() and (path.name == METADATA_DIRECTORY or _holds_a_log(path)):
        yield path
        return
    yield from sorted(p for p in path.rglob(METADATA_DIRECTORY) if p.is_dir())


def _holds_a_log(path: Path) -> bool:
    """A renamed copy of a metadata log: segments and no partition folders above them."""
    return any(_SEGMENT.fullmatch(p.name) or _SNAPSHOT.fullmatch(p.name) for p in path.iterdir())


def _properties(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    pairs = (line.partition("=") for line in path.read_text(errors="replace").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if not key.startswith("#")}
