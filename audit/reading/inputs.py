"""Inputs of an audit: found, checked and read once, before Spark is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from audit.inputs.metadata_log import MetadataLog
from audit.inputs.replicas import AcknowledgedSend, ReplicaFiles
from audit.reading.client_history import acknowledged, faults_of
from audit.reading.journal import faults_in, find_journals, read_journal
from audit.reading.logs import UnreadableInput, find_logs
from audit.reading.replicas import find_replicas


class Inputs(NamedTuple):
    """The inputs of an audit.

    They are copies of the metadata log, the brokers' replicas, acknowledged sends by (topic,
    partition), and the faults of the clients' history or the cluster's journal (`faults_of`,
    `faults_in`); one that did not end has the end -1.
    """

    logs: Sequence[MetadataLog]
    replicas: Sequence[ReplicaFiles]
    sent: Mapping[tuple[str, int], Sequence[AcknowledgedSend]]
    faults: Sequence[Sequence[Any]] = ()

    @property
    def size_bytes(self) -> int:
        """The size of the files to read, without snapshots."""
        files = (one.segments for found in (self.logs, self.replicas) for one in found)
        return sum(segment.size_bytes for segments in files for segment in segments)


def read_inputs(
    paths: Iterable[Path], *, history: Iterable[Path] = (), data: Iterable[Path] = ()
) -> Inputs:
    """Return the metadata logs at or below `paths`, with the other inputs.

    history: client history files (docs/chaos.md). data: log directories of brokers, to compare
    replicas; brokers' directories among `paths` are found without it.

    Raises UnreadableInput for files that cannot be audited, OSError.
    """
    paths, history, data = list(paths), list(history), list(data)
    logs = find_logs(paths)
    for path in data:
        if not find_replicas([path]):
            raise UnreadableInput(
                f"no replicas at or below {path}: --data takes log directories of brokers, which "
                "hold meta.properties and a folder for each partition"
            )
    sent = acknowledged(history)
    replicas = find_replicas([*data, *paths])
    if history and not replicas:
        raise UnreadableInput(
            "a history is judged against the brokers' logs: name their log directories"
        )
    return Inputs(logs, replicas, sent, faults_of(history) if history else _journaled(paths))


def _journaled(paths: Iterable[Path]) -> list[list[Any]]:
    """Return the faults in the journals of the local clusters that the paths belong to.

    Client histories are more exact, and have the same faults, so they replace the journals.
    """
    journals = [read_journal(directory) for directory in find_journals(paths)]
    return sorted((fault for deeds in journals for fault in faults_in(deeds)), key=lambda f: f[2])
