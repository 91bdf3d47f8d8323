"""The fork server, in which a command or a node's report fails alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from kraftbox.launcher import frames
from kraftbox.launcher.fork_server import ForkServer, checked_report


class Piped:
    """A fork server, and the other ends of its pipes."""

    def __init__(self) -> None:
        commands, self.commands = os.pipe()
        self.events, events = os.pipe()
        self.fds = (commands, self.commands, self.events, events)
        self.server = ForkServer(commands, events, spawn=True)
        self._decoder = frames.Decoder()

    def command(self, **command: Any) -> None:
        os.write(self.commands, frames.encode(command))
        self.server._read_commands()

    def told(self) -> list[dict[str, Any]]:
        os.write(self.fds[3], frames.encode({"event": "end"}))
        return self._decoder.feed(os.read(self.events, 1 << 16))[:-1]

    def close(self) -> None:
        for fd in (*self.fds, self.server._wake_r, self.server._wake_w):
            os.close(fd)
        self.server._selector.close()


@pytest.fixture
def piped() -> Iterator[Piped]:
    made = Piped()
    yield made
    made.close()


@pytest.mark.parametrize(
    "command",
    [{}, {"do": "tell"}, {"do": "signal", "id": 1}, {"do": "signal", "id": [1], "number": 9}],
    ids=repr,
)
def test_malformed_command_fails_alone(piped: Piped, command: Any) -> None:
    piped.command(**command)
    assert piped.told() == []
    assert not piped.server._end_wanted


def test_start_that_fails_unforeseen_is_reported_as_a_node_that_did_not_start(
    piped: Piped,
) -> None:
    piped.command(do="start", id=1)
    refused, exited = piped.told()
    assert (refused["event"], refused["id"], refused["error"]) == (
        "refused",
        1,
        "KeyError('properties')",
    )
    assert exited == {"event": "exited", "id": 1, "code": 1}


@pytest.mark.parametrize(
    "report",
    [
        {"event": "ready", "addresses": ["a:1"], "http": None},
        {"event": "ready", "addresses": [], "http": "a:2"},
        {"event": "refused", "error": "why"},
        {"event": "network", "cut_off": True, "error": None},
    ],
    ids=repr,
)
def test_report_of_a_node_is_passed_on(report: dict[str, Any]) -> None:
    assert checked_report({**report, "id": "another"}) == report


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"event": None},
        {"event": ["ready"]},
        {"event": "exited", "code": 0},
        {"event": "started", "pid": 1},
        {"event": "ready"},
        {"event": "ready", "addresses": "a:1", "http": None},
        {"event": "ready", "addresses": [1], "http": None},
        {"event": "ready", "addresses": [], "http": 1},
        {"event": "refused"},
        {"event": "refused", "error": None},
        {"event": "network", "cut_off": 1, "error": None},
        {"event": "network", "cut_off": True, "error": []},
    ],
    ids=repr,
)
def test_report_that_is_invalid_is_dropped(report: dict[str, Any]) -> None:
    """Regression: an unchecked message of a node could end the supervisor."""
    assert checked_report(report) is None


def test_error_in_a_report_is_cut_to_what_a_frame_holds() -> None:
    report = checked_report({"event": "refused", "error": "x" * 1_000_000})
    assert report is not None
    assert len(frames.encode(report)) < 10_000
