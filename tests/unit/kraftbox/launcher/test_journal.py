"""The journal of a local cluster: its lines, its size, and the names of callers."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from kraftbox.launcher import journal
from kraftbox.launcher.journal import NAME, OLD_NAME, Journal
from kraftbox.launcher.peers import command_of, in_words


def test_entry_is_a_line_with_time_event_and_facts(tmp_path: Path) -> None:
    Journal(str(tmp_path)).note("kill", node=2, by="kraftbox node kill 2", error=None)
    Journal(str(tmp_path)).note("ready", node=2)
    first, second = map(json.loads, (tmp_path / NAME).read_text().splitlines())
    assert first.pop("time_ms") > 1_700_000_000_000
    assert first == {"event": "kill", "node": 2, "by": "kraftbox node kill 2"}
    assert (second["event"], second["node"]) == ("ready", 2)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_long_journal_is_renamed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BYTES_MAX", 100)
    made = Journal(str(tmp_path))
    for node in range(50):
        made.note("kill", node=node)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {OLD_NAME} <= set(found) <= {NAME, OLD_NAME}
    assert max(map(len, found.values())) < 200
    assert '"node": 49' in found.get(NAME, found[OLD_NAME])


def test_journal_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    Journal(str(tmp_path / "gone")).note("kill", node=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["/v/bin/python", "/v/bin/kraftbox", "node", "kill", "2", "--dir", "x"],
            "kraftbox node kill 2",
        ),
        (["python", "-P", "-E", "/v/kraftbox/__main__.py", "down"], "kraftbox down"),
        (["python", "-m", "kraftbox", "chaos", "--dir", "x"], "kraftbox chaos"),
        (["python", "-P", "-E", "/v/kraftbox/__main__.py", "_testing"], "kraftbox.testing"),
        (["python", "/v/bin/pytest", "tests", "--password=x"], "pytest"),
        (["python3.12", "-W", "-m", "pytest"], "pytest"),
        (["python", "run.py"], "run.py"),
        (["python"], "python"),
        ([], None),
    ],
)
def test_caller_is_named_without_options(arguments: list[str], expected: str | None) -> None:
    """Options may hold secrets, and the journal is shown to others."""
    assert in_words(arguments) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="SO_PEERCRED")
def test_caller_at_the_other_end_of_a_socket_is_found() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs, open(f"/proc/{os.getpid()}/cmdline", "rb") as file:
        assert command_of(ours) == in_words(
            [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]
        )
