"""The built wheel in an environment that has packages with the names of ours (decision 10)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import run
from tests.e2e.conftest import Installed

pytestmark = pytest.mark.e2e

_CHECK = """
import json, sys
import storage, protocol
import kraftbox
ours = [name for name in sys.modules if name.split(".")[0] in ("broker", "controller", "runtime")]
print(json.dumps({"storage": storage.OWNER, "protocol": protocol.OWNER, "ours": ours}))
"""


@pytest.fixture
def python(installed: Installed) -> Path:
    return installed.python


def test_wheel_adds_one_package_name(installed: Installed) -> None:
    assert {name for name in installed.added if not name.endswith(".dist-info")} == {"kraftbox"}


def test_wheel_keeps_foreign_packages_of_same_names(python: Path, tmp_path: Path) -> None:
    seen = json.loads(run(python, "-c", _CHECK, cwd=tmp_path))
    assert seen == {"storage": "theirs", "protocol": "theirs", "ours": []}


def test_wheel_version_option_equals_metadata(python: Path, tmp_path: Path) -> None:
    wanted = run(python, "-c", "from importlib import metadata as m; print(m.version('kraftbox'))")
    assert run(python.with_name("kraftbox"), "--version", cwd=tmp_path) == f"kraftbox {wanted}"


def test_the_installed_command_serves_a_client(python: Path, tmp_path: Path) -> None:
    """The command starts in a folder that also has a `storage` of its own."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    command = python.with_name("kraftbox")
    node = subprocess.Popen(
        [command, "up", "--dir", tmp_path / "data", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert node.stdout is not None
    try:
        bootstrap = node.stdout.readline().strip().removeprefix("bootstrap.servers=")
        tools = ("--bootstrap-server", bootstrap)
        run(command, "topics", "create", "hello", *tools, cwd=tmp_path)
        listed = json.loads(run(command, "topics", "list", "--json", *tools, cwd=tmp_path))
        assert "hello" in json.dumps(listed)
    finally:
        node.terminate()
        node.wait(timeout=20)
        node.stdout.close()
    assert node.returncode == 0


def test_the_installed_command_forks_a_cluster(python: Path, tmp_path: Path) -> None:
    """The fork server finds our packages from the wheel, whatever is in the current folder."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    command = python.with_name("kraftbox")
    place = ("--dir", tmp_path / "data")
    run(command, "up", "--brokers", "2", "--port", "0", "--detach", *place, cwd=tmp_path)
    try:
        nodes = json.loads(run(command, "status", "--json", *place, cwd=tmp_path))["nodes"]
        assert [node["state"] for node in nodes] == ["running"] * 3
    finally:
        run(command, "down", *place, cwd=tmp_path)
