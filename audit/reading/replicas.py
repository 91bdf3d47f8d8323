"""Log directories of brokers: their partitions and the committed offsets of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from audit.inputs.replicas import ReplicaFiles
from audit.reading.logs import (
    META_PROPERTIES,
    METADATA_DIRECTORY,
    UnreadableInput,
    read_listing,
)
from protocol.ids import uuid_from_text, uuid_to_text

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LEADER_EPOCHS = "leader-epoch-checkpoint"
_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_SUFFIXES = ("-delete", "-stray", "-future")


def find_replicas(paths: Iterable[Path]) -> list[ReplicaFiles]:
    """Return the replicas in all log directories at or below the paths, by topic, partition,
    broker.
    """
    found: dict[str, ReplicaFiles] = {}
    for path in paths:
        if not path.exists():
            raise UnreadableInput(f"{path} does not exist")
        for directory in _log_directories(path):
            for replica in _replicas(directory.resolve()):
                found[replica.path] = replica
    return sorted(found.values(), key=lambda r: (r.topic, r.partition, r.broker, r.path))


def _log_directories(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.name == METADATA_DIRECTORY:
        return
    for meta in sorted(path.rglob(META_PROPERTIES)):
        yield meta.parent


def _replicas(directory: Path) -> Iterator[ReplicaFiles]:
    listing = (directory / META_PROPERTIES).read_text(errors="replace")
    node = re.search(r"^node\.id=(\d+)", listing, re.MULTILINE)
    if node is None:
        return
    watermarks = _checkpoint(directory / HIGH_WATERMARKS)
    starts = _checkpoint(directory / LOG_STARTS)
    at_rest = (directory / CLEAN_SHUTDOWN).is_file()
    for folder in sorted(p for p in directory.iterdir() if p.is_dir()):
        match = _FOLDER.fullmatch(folder.name)
        if match is None or folder.name == METADATA_DIRECTORY or folder.name.endswith(_SUFFIXES):
            continue
        try:
            segments = read_listing(folder).segments
        except FileNotFoundError:
            continue  # its topic was deleted in the meantime
        if not segments:
            continue
        topic, partition = match["topic"], int(match["partition"])
        yield ReplicaFiles(
            topic=topic,
            partition=partition,
            broker=int(node[1]),
            path=str(folder),
            topic_id=_topic_id(folder / "partition.metadata"),
            high_watermark=int(watermarks.get((topic, str(partition)), "0")),
            epochs=_epochs(folder / LEADER_EPOCHS),
            segments=segments,
            log_start=int(starts.get((topic, str(partition)), "0")),
            at_rest=at_rest,
        )


def _checkpoint(path: Path) -> dict[tuple[str, str], str]:
    """Return the values of an offset checkpoint by (topic, partition)."""
    if not path.is_file():
        return {}
    entries = (line.split(" ") for line in path.read_text().splitlines()[2:])
    return {(e[0], e[1]): e[2] for e in entries if len(e) == 3}


def _epochs(path: Path) -> tuple[tuple[int, int], ...] | None:
    if not path.is_file():
        return None
    entries = (line.split(" ") for line in path.read_text().splitlines()[2:])
    return tuple((int(e[0]), int(e[1])) for e in entries if len(e) == 2)


def _topic_id(path: Path) -> str | None:
    """Return the topic ID in the form of the metadata; both servers accept it with padding, too."""
    if not path.is_file():
        return None
    match = re.search(r"^topic_id: (\S+)", path.read_text(), re.MULTILINE)
    if match is None:
        return None
    try:
        return uuid_to_text(uuid_from_text(match[1]))
    except ValueError:
        return match[1]
