"""Shell: Comparison of a partition's replicas byte by byte (P4), from the log directories.

Only batches below the end of the shortest replica are compared: later ones may still be in
replication. Without writes, and with every replica in sync, that is the whole log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kraftbox.chaos.checks import BROKEN, EXAMPLES_MAX, Finding
from protocol.batch.header import iter_batches


class Batch(NamedTuple):
    """A batch in a segment. `digest` covers all its bytes, including the leader epoch."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    digest: bytes


def batches(directory: Path) -> Iterator[Batch]:
    """Yield all batches of a partition's directory, in order. Raises OSError."""
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
    """Return the first difference between the replicas (by node) of a partition, or None."""
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
    """Return the log end offsets by node."""
    return {node: found[-1].next_offset if found else 0 for node, found in replicas.items()}


def read(directories: Mapping[int, Path], topic: str, partition: int) -> dict[int, list[Batch]]:
    """Return the replicas of a partition by node; nodes without one are left out."""
    found = {}
    for node_id, directory in directories.items():
        folder = directory / f"{topic}-{partition}"
        if folder.is_dir():
            found[node_id] = list(batches(folder))
    return found


def findings(
    directories: Mapping[int, Path],
    topic: str,
    partitions: int,
    *,
    copies: int = 0,
    committed: Mapping[int, int] | None = None,
) -> list[Finding]:
    """Return the errors of replicas without ongoing writes.

    They differ, one lacks records below the high watermark in `committed` (by partition), or the
    number of replicas is not `copies`.
    """
    differing, incomplete = [], []
    for partition in range(partitions):
        name = f"{topic}-{partition}"
        replicas = read(directories, topic, partition)
        different = compare(replicas) if len(replicas) > 1 else None
        if different is not None:
            differing.append(f"{name}: {different}")
        mark = (committed or {}).get(partition, 0)
        for node_id, end in ends(replicas).items():
            if end < mark:
                incomplete.append(
                    f"{name}: node {node_id} ends at {end}; the high watermark is {mark}"
                )
        if directories and copies and len(replicas) != copies:
            nodes = ", ".join(map(str, replicas)) or "none"
            incomplete.append(f"{name}: expected {copies} replicas; found on nodes {nodes}")
    return [
        *_found("replicas-differ", "replicas of a partition contain different records", differing),
        *_found("replicas-incomplete", "replicas are incomplete at rest", incomplete),
    ]


def _found(rule: str, message: str, examples: list[str]) -> list[Finding]:
    if not examples:
        return []
    return [Finding(f"P4 {rule}", BROKEN, len(examples), message, examples[:EXAMPLES_MAX])]
