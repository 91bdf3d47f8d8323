"""The journal of a local cluster, read by the audit: entries, faults, and where it is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from audit.reading.journal import Deed, faults_in, find_journals, parse, read_journal
from kraftbox.launcher.journal import NAME, OLD_NAME, Journal


def deed(time_ms: int, event: str, node: int | None = None, **facts: Any) -> Deed:
    return Deed(time_ms, event, node, facts)


def test_reader_understands_the_writer(tmp_path: Path) -> None:
    Journal(str(tmp_path)).note("exited", node=2, code=-9, expected=True)
    (found,) = read_journal(tmp_path)
    assert (found.event, found.node, found.facts) == ("exited", 2, {"code": -9, "expected": True})


def test_entries_of_both_files_are_sorted_and_broken_lines_skipped(tmp_path: Path) -> None:
    line = {"event": "kill", "node": 1}
    (tmp_path / OLD_NAME).write_text(json.dumps({**line, "time_ms": 1}) + "\n{broken\n")
    (tmp_path / NAME).write_bytes(json.dumps({**line, "time_ms": 2}).encode() + b"\n\xff\n[]\n{")
    assert [one.time_ms for one in read_journal(tmp_path)] == [1, 2]
    assert read_journal(tmp_path / "nothing") == []


def test_line_with_values_of_other_types_is_no_entry() -> None:
    for line in (b'{"time_ms": "x", "event": "a"}', b'{"time_ms": 1}', b"null", b"[1]"):
        assert parse(line) is None
    assert parse(b'{"time_ms": 1, "event": "a", "node": "1"}') is None
    assert parse(b"[" * 100_000) is None


def test_faults_last_until_the_node_serves_again() -> None:
    deeds = [
        deed(1, "kill", 2, by="kraftbox node kill 2"),
        deed(2, "exited", 2, code=-9, expected=True),
        deed(3, "pause", 1),
        deed(4, "start", 2),
        deed(5, "ready", 2),
        deed(6, "resume", 1),
        deed(7, "cut-off", 3),
        deed(8, "exited", 1, code=1, expected=False),
    ]
    assert faults_in(deeds) == [
        ["kill", [2], 1, 5, "kraftbox node kill 2"],
        ["pause", [1], 3, 6, ""],
        ["cut-off", [3], 7, -1, ""],
        ["crash", [1], 8, -1, ""],
    ]


def test_links_are_a_fault_until_they_change() -> None:
    rule = [1, 0, 1.0, 0.0, 0.0, 0, 0.0, 0.0]
    deeds = [
        deed(1, "links", rules=[rule]),
        deed(2, "links", rules=[[2, 3, *rule[2:]]]),
        deed(3, "links", rules=[]),
    ]
    assert faults_in(deeds) == [["links", [1], 1, 2, ""], ["links", [2, 3], 2, 3, ""]]


def test_restart_of_the_cluster_ends_faults() -> None:
    deeds = [deed(1, "kill", 2), deed(2, "cluster-starting"), deed(3, "ready", 2)]
    assert faults_in(deeds) == [["kill", [2], 1, 2, ""]]


def test_journal_is_found_above_a_nodes_data(tmp_path: Path) -> None:
    data = tmp_path / "node-1" / "data"
    data.mkdir(parents=True)
    assert find_journals([data]) == []
    Journal(str(tmp_path)).note("kill", node=1)
    assert find_journals([data, tmp_path]) == [tmp_path.resolve()]
