"""The command line: exit codes, usage, and what is said about failures."""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftbox import __main__ as program
from kraftbox.cli.main import main
from protocol.transport.client import SOFTWARE_VERSION


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kraftbox", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command in this process: one of its own takes half a second of a processor."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run_here(*arguments):
        try:
            code = program.main(arguments)
        except SystemExit as end:
            code = end.code
        return Done(code, *capsys.readouterr())

    return run_here


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["up", "--help"],
        ["server", "--help"],
        ["storage", "--help"],
        ["status", "--help"],
        ["node", "kill", "--help"],
        ["logs", "--help"],
        ["down", "--help"],
        ["topics", "create", "--help"],
        ["configs", "alter", "--help"],
        ["groups", "reset-offsets", "--help"],
        ["produce", "--help"],
        ["consume", "--help"],
        ["dump-log", "--help"],
        ["elect", "--help"],
        ["tier", "rebuild", "--help"],
    ],
)
def test_help(run, arguments):
    done = run(*arguments)
    assert done.returncode == 0
    assert "usage" in done.stdout.lower()


def test_version():
    done = run_process("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"kraftbox {metadata.version('kraftbox')}\n"


def test_a_process_with_an_object_store_ends_without_finalisation():
    """Threads of obstore that came back from Rust meanwhile aborted one command in fifteen."""
    program = """
import atexit, sys
sys.modules["obstore"] = sys
sys.argv = ["kraftbox", "--version"]
atexit.register(print, "finalised")
from kraftbox.__main__ import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"kraftbox {metadata.version('kraftbox')}\n"


def test_version_of_what_is_not_installed(monkeypatch, capsys):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert main(["--version"]) == 1
    assert "not installed" in capsys.readouterr().err


def test_brokers_are_told_the_version_of_the_distribution():
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    assert project["project"]["version"] == SOFTWARE_VERSION


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["up", "--port", "x"],
        ["up", "--port", "70000"],
        ["up", "--set", "novalue"],
        ["up", "--controllers", "x"],
        ["up", "--racks", "a,,b"],
        ["node", "kill"],
        ["topics", "create"],
        ["topics", "create", "t", "--config", "novalue"],
        ["configs", "alter", "--topic", "t"],
        ["configs", "describe"],
        ["consume", "t", "--offset", "1"],
        ["consume", "t", "--partition", "0", "--offset", "-1"],
        ["consume", "t", "--partition", "0", "--offset", "1", "--from-beginning"],
        ["produce", "t", "--key-separator", ""],
        ["groups", "reset-offsets", "g", "--topic", "t"],
        ["elect"],
        ["elect", "t"],
        ["elect", "t-x"],
        ["elect", "-0"],
        ["elect", "t-2147483648"],
        ["elect", "t-0", "--all"],
        ["elect", "t-0", "--explain", "t-0"],
        ["elect", "--explain", "t"],
        ["elect", "t-0", "--leader", "1"],
        ["elect", "t-0", "--type", "designation"],
        ["elect", "--all", "--type", "designation", "--leader", "1"],
        ["elect", "--file", "f", "--type", "designation", "--leader", "1"],
        ["elect", "t-0", "--type", "designation", "--leader", "-1"],
        ["elect", "--all", "--file", "f"],
        ["elect", "t-0", "--type", "random"],
        ["elect", "t-0", "--timeout", "0"],
        ["tier", "list"],
        ["tier", "list", "--dir", ".", "-b", "h:1"],
        ["tier", "list", "--dir", ".", "--properties", "p"],
        ["tier", "verify", "-b", "h:1"],
    ],
)
def test_wrong_usage_is_2(run, arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["server", "/nowhere/server.properties"],
        ["up", "--dir", "/dev/null/x"],
        ["topics", "list", "--bootstrap-server", "127.0.0.1:1"],
        ["topics", "list", "--bootstrap-server", "nonsense"],
        ["storage", "version-mapping", "--release-version", "1.0"],
        ["storage", "feature-dependencies", "--feature", "nothing=1"],
    ],
)
def test_failure_is_1_with_one_clear_line(arguments):
    done = run_process(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("kraftbox: ")
    assert "Traceback" not in done.stderr
    assert "[Errno" not in done.stderr


def test_an_option_that_does_not_exist_shows_those_that_do():
    done = run_process("up", "--broker", "3")
    assert done.returncode == 2
    assert "usage: kraftbox up [-h] [--dir DIR]" in done.stderr
    assert "unrecognized arguments: --broker 3" in done.stderr


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_named_with_the_reason():
    done = run_process("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert done.stderr == "kraftbox: cannot reach 127.0.0.1:1: Connection refused\n"


def test_a_bad_value_names_key_value_and_what_is_allowed(tmp_path):
    done = run_process("up", "--dir", str(tmp_path / "d"), "--set", "num.partitions=0")
    assert "num.partitions=0: must be an integer of at least 1" in done.stderr


def test_version_mapping_as_json(run):
    done = run("storage", "version-mapping", "--json")
    assert json.loads(done.stdout)["kraft.version"] == 1


def test_random_uuids_differ(run):
    first, second = run("storage", "random-uuid"), run("storage", "random-uuid")
    assert len(first.stdout.strip()) == 22
    assert first.stdout != second.stdout
