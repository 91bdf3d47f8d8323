"""Settings passed from one process to another, never on a command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kraftbox.chaos import local
from kraftbox.cli import up
from kraftbox.launcher import detach as detaching
from kraftbox.launcher.handed_settings import VARIABLE, handed, taken, without_settings
from kraftbox.launcher.place import ClusterPlace
from kraftbox.testing import cluster
from runtime.errors import StartupRefused

SECRET = {"rsm.config.secret.access.key": "THE-SECRET = ä"}


def test_settings_taken_are_those_handed_and_are_taken_once() -> None:
    environ = handed(SECRET, {"PATH": "x"})
    assert taken(environ) == SECRET
    assert environ == {"PATH": "x"}
    assert taken(environ) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "null"])
def test_malformed_settings_are_refused(text: str) -> None:
    with pytest.raises(StartupRefused, match=VARIABLE):
        taken({VARIABLE: text})


def test_arguments_without_settings_keep_all_others() -> None:
    arguments = ["--dir", "d", "--set", "a=b", "--set=c=d", "--port", "0", "--set"]
    assert without_settings(arguments) == ["--dir", "d", "--port", "0"]


class Started(Exception):
    """A stand-in for a process."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record command lines and environments of the processes that would be started."""
    seen: list[Any] = []

    def start(command: list[str], **more: Any) -> None:
        seen.append((command, more["env"]))
        raise Started

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(subprocess, "run", start)
    return seen


@pytest.mark.parametrize("who", ["detach", "chaos", "testing"])
def test_no_command_line_of_ours_has_a_setting(
    tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    with pytest.raises(Started):
        if who == "detach":
            arguments = ["up", "--dir", str(tmp_path), "--detach"]
            for key, value in SECRET.items():
                arguments += ["--set", f"{key}={value}"]
            up.main(arguments)
        elif who == "chaos":
            local.start(ClusterPlace(tmp_path), settings=SECRET, isolate=False)
        else:
            cluster.KafkaCluster.start(tmp_path, configs=SECRET)
    ((command, environ),) = started
    assert not any("SECRET" in word for word in command)
    assert json.loads(environ[VARIABLE]).items() >= SECRET.items()


def test_up_takes_handed_settings_below_its_own_and_out_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setenv(VARIABLE, json.dumps({"a": "1", "b": "2"}))
    monkeypatch.setattr(detaching, "detach", lambda *given: seen.append(given) or 0)
    assert up.main(["up", "--detach", "--set", "b=3"]) == 0
    assert seen == [(["--set", "b=3"], {"a": "1", "b": "3"})]
    assert VARIABLE not in os.environ


def test_malformed_handed_settings_are_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = io.StringIO()
    monkeypatch.setenv(VARIABLE, "{")
    monkeypatch.setattr("sys.stderr", errors)
    assert up.main(["up"]) == 1
    assert errors.getvalue() == f"kraftbox: {VARIABLE}: expected a JSON object of texts\n"
