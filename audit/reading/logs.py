"""Metadata logs in directories: segments, snapshots, node and cluster.

A log is a `__cluster_metadata-0` directory, of a controller or a broker, of Kraftbox or of Apache
Kafka. Its parent directory has `meta.properties`, which names node and cluster. A copy of the log
directory alone is accepted, too; its name in findings is its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from audit.decoding.batches import Batch, split
from audit.inputs.metadata_log import MetadataLog, Segment, Snapshot
from audit.reading.segments import walk
from protocol.errors import ApiError, ProtocolError
from protocol.metadata import decode_record

METADATA_DIRECTORY = "__cluster_metadata-0"
META_PROPERTIES = "meta.properties"

_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})|.)")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class UnreadableInput(Exception):
    """The given files cannot be audited; the message has the file and the reason."""


def find_logs(paths: Iterable[Path]) -> list[MetadataLog]:
    """Return every metadata log at or below the given directories, each once, sorted by path.

    Raises UnreadableInput for a path that is missing, has no metadata log or one without files, for
    a file that cannot be opened, and for logs of more than one cluster.
    """
    found: dict[str, MetadataLog] = {}
    for path in paths:
        for directory in _metadata_directories(path):
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
        raise UnreadableInput(
            f"{empty[0]} holds neither segments (00000000000000000000.log) nor snapshots "
            "(00000000000000000000-0000000000.checkpoint)"
        )
    for log in logs:
        _try_to_open([s.path for s in log.segments] + [s.path for s in log.snapshots])
    return logs


def _metadata_directories(path: Path) -> list[Path]:
    """Return at least one directory, at or below the path. Raises UnreadableInput."""
    if not path.exists():
        raise UnreadableInput(f"{path} does not exist")
    if not path.is_dir():
        raise UnreadableInput(
            f"{path} is no directory: name a {METADATA_DIRECTORY} directory or one above"
        )
    here = list(_directories(path))
    if not here:
        raise UnreadableInput(f"no {METADATA_DIRECTORY} directory at or below {path}")
    if here == [path] and path.name != METADATA_DIRECTORY and _holds_other_records(path):
        raise UnreadableInput(
            f"{path} holds records of a topic, not of the cluster's metadata: name a "
            f"{METADATA_DIRECTORY} directory or one above (--data takes brokers' log directories)"
        )
    return here


def _holds_other_records(directory: Path) -> bool:
    """Return whether the first record in the segments is not a metadata record."""
    for segment in read_listing(directory).segments:
        for found in walk(segment.path):
            if isinstance(found, Batch) and found.crc_ok and not found.header.is_control:
                try:
                    for _, _, _, value in split(found)[:1]:
                        decode_record(value or b"")
                except (ProtocolError, ApiError):
                    return True
                return False
    return False


def _try_to_open(paths: Iterable[str]) -> None:
    """Raise UnreadableInput if a file cannot be opened.

    Tasks read the files, too, but Spark hides the reason of a failed task.
    """
    for path in paths:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise UnreadableInput(f"{path} cannot be read: {error.strerror}") from None


def read_listing(directory: Path) -> MetadataLog:
    """Return the files of one log directory.

    A running node may delete some while they are listed.
    """
    segments = []
    snapshots = []
    for child in sorted(directory.iterdir()):
        if match := _SEGMENT.fullmatch(child.name):
            with suppress(FileNotFoundError):
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
    """Return whether a directory is a renamed copy of a metadata log: it has segments or
    snapshots.
    """
    return any(_SEGMENT.fullmatch(p.name) or _SNAPSHOT.fullmatch(p.name) for p in path.iterdir())


def _properties(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    pairs = (line.partition("=") for line in path.read_text(encoding="latin-1").split("\n"))
    return {key.strip(): _unescaped(value) for key, _, value in pairs if not key.startswith("#")}


def _unescaped(value: str) -> str:
    """Return the value that Java reads: without escapes and leading blanks."""

    def one(match: re.Match[str]) -> str:
        return chr(int(match[2], 16)) if match[2] else _CONTROLS.get(match[1], match[1])

    text = _ESCAPE.sub(one, value.lstrip(" \t\f").rstrip("\r"))
    # A character beyond the basic plane is written as two escapes.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
