"""Reader of the journal of a local cluster: actions on nodes and links, and the faults they were.

`kraftbox up` writes `events.jsonl` into the cluster's directory (`kraftbox/launcher/journal.py` has
its format). A line that cannot be read is skipped: a full disk may have cut it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

NAMES = ("events.old.jsonl", "events.jsonl")
PARENTS_MAX = 3
"""An audit may name a node's data directory; the journal is in the directory of the cluster."""

BEGINS = {"kill": ("ready",), "stop": ("ready",), "pause": ("resume", "exited")} | {
    "cut-off": ("reconnect", "exited", "network-failed"),
    "crash": ("ready",),
}
"""Faults of a node, and the events that end them."""
LINKS = "links"
NO_END = -1


class Deed(NamedTuple):
    """One entry of the journal; `node` is None for the whole cluster."""

    time_ms: int
    event: str
    node: int | None
    facts: Mapping[str, Any]


def find_journals(paths: Iterable[Path]) -> list[Path]:
    """Return the directories at or above the paths that have a journal, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        here = path.resolve()
        for folder in (here, *list(here.parents)[:PARENTS_MAX]):
            if any((folder / name).is_file() for name in NAMES):
                found[folder] = None
                break
    return list(found)


def read_journal(directory: Path) -> list[Deed]:
    """Return the entries of a directory's journal by time; none without a journal."""
    found = [deed for name in NAMES for deed in read_file(directory / name)]
    return sorted(found, key=lambda deed: deed.time_ms)


def read_file(path: Path) -> list[Deed]:
    """Return the entries of a file in its order; none if it does not exist."""
    with suppress(FileNotFoundError):
        lines = path.read_bytes().split(b"\n")
        return [deed for line in lines if (deed := parse(line)) is not None]
    return []


def parse(line: bytes) -> Deed | None:
    """Return the entry of one line, None for a line that is not an entry."""
    try:
        entry = json.loads(line)
        node = entry.pop("node", None)
        deed = Deed(int(entry.pop("time_ms")), str(entry.pop("event")), node, entry)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return deed if node is None or type(node) is int else None


def faults_in(deeds: Sequence[Deed]) -> list[list[Any]]:
    """Return the faults, sorted by their begins, as `client_history.faults_of` does.

    Each has kind, nodes, begin and end in ms since 1970, and detail: the command that requested it.
    The end of a fault without an end in the journal is NO_END.
    """
    found: list[list[Any]] = []
    open_faults: dict[tuple[str, int | None], list[Any]] = {}
    for deed in deeds:
        event = deed.event
        if event == "exited" and not deed.facts.get("expected", True):
            event = "crash"
        for (kind, node), fault in list(open_faults.items()):
            is_over = kind == LINKS and event in (LINKS, "cluster-stopped")
            if kind != LINKS:
                is_over = (node == deed.node and deed.event in BEGINS[kind]) or (
                    event == "cluster-starting"
                )
            if is_over:
                fault[3] = deed.time_ms
                del open_faults[kind, node]
        nodes = [] if deed.node is None else [deed.node]
        if event == LINKS:
            rules = deed.facts.get("rules") or []
            nodes = sorted({end for rule in rules for end in rule[:2] if end})
        if (event in BEGINS and deed.node is not None) or (event == LINKS and nodes):
            fault = [event, nodes, deed.time_ms, NO_END, str(deed.facts.get("by") or "")]
            open_faults[event, deed.node] = fault
            found.append(fault)
    return found
