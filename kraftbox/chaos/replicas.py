"""Whether the replicas of a partition hold the same bytes (P4). Reads the brokers' log directories.

Only batches below the shortest replica's end are compared: what stands behind it may still be on
its way. At rest, with every replica in sync, that is all of the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kraftbox.chaos.checks import BROKEN, EXAMPLES_MAX, Finding
from protocol.batch.header import iter_batches


class Batch(NamedTuple):
    """A batch as it lies in a segment. `digest` is of all its bytes, leader epoch included."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    digest: bytes


def batches(directory: Path) -> Iterator[Batch]:
    """All batches of a partition's folder, in order. Raises OSError."""
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for header, at in iter_batches(data):
            bytes_of = data[at : at + header.size_bytes]
            yield Batch(
                header.base_offset,
                header.next_offset,
                header.leader_epoch,
                hashlib.blake2b(bytes_of, digest_size=16).digest(),
            )


def compare(replicas: Mapping[int, list[Batch]]) -> str | None:
    """What differs first between the replicas of one partition, by node; None if nothing does."""
    shortest = min((found[-1].next_offset if found else 0) for found in replicas.values())
    first_node, first = next(iter(replicas.items()))
    for node_id, other in replicas.items():
        if node_id == first_node:
            continue
        for mine, theirs in zip(first, other, strict=False):
            if mine.base_offset >= shortest and theirs.base_offset >= shortest:
                break
            if mine != theirs:
                return f"node {first_node} has {_text(mine)}, node {node_id} has {_text(theirs)}"
    return None


def _text(batch: Batch) -> str:
    return (
        f"offsets {batch.base_offset}-{batch.next_offset - 1} of epoch {batch.leader_epoch} "
        f"({batch.digest.hex()[:8]})"
    )


def ends(replicas: Mapping[int, list[Batch]]) -> dict[int, int]:
    """Log end offsets, by node."""
    return {node: found[-1].next_offset if found else 0 for node, found in replicas.items()}


def read(directories: Mapping[int, Path], topic: str, partition: int) -> dict[int, list[Batch]]:
    """The replicas of a partition, by node; nodes without one are left out."""
    found = {}
    for node_id, directory in directories.items():
        folder = directory / f"{topic}-{partition}"
        if folder.is_dir():
            found[node_id] = list(batches(folder))
    return found


def findings(directories: Mapping[int, Path], topic: str, partitions: int) -> list[Finding]:
    """The finding that replicas differ, or none."""
    examples = []
    for partition in range(partitions):
        replicas = read(directories, topic, partition)
        different = compare(replicas) if len(replicas) > 1 else None
        if different is not None:
            examples.append(f"{topic}-{partition}: {different}")
    if not examples:
        return []
    message = "replicas of a partition hold different records"
    return [Finding("P4 replicas-differ", BROKEN, len(examples), message, examples[:EXAMPLES_MAX])]
