"""The built wheel in an environment that owns packages with the names of ours (decision 10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]
THEIR_PACKAGES = ("storage", "protocol")

_CHECK = """
import json, sys
import storage, protocol
import kraftbox
ours = [name for name in sys.modules if name.split(".")[0] in ("broker", "controller", "runtime")]
print(json.dumps({"storage": storage.OWNER, "protocol": protocol.OWNER, "ours": ours}))
"""


def run(*command: str | Path, timeout_s: float = 300, **options: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with their packages and our wheel installed."""
    place = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", place, REPOSITORY)
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name in THEIR_PACKAGES:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("OWNER = 'theirs'\n")
    before = {entry.name for entry in site.iterdir()}
    wheel = next(place.glob("*.whl"))
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    added = {entry.name for entry in site.iterdir()} - before
    assert {name for name in added if not name.endswith(".dist-info")} == {"kraftbox"}
    run(python, "-m", "pip", "install", "-q", wheel)
    return python


def test_their_packages_stay_theirs(python: Path, tmp_path: Path) -> None:
    seen = json.loads(run(python, "-c", _CHECK, cwd=tmp_path))
    assert seen == {"storage": "theirs", "protocol": "theirs", "ours": []}


def test_the_installed_command_serves_a_client(python: Path, tmp_path: Path) -> None:
    """Started in a folder that has a `storage` of its own, too."""
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
    """The fork server finds our packages from the wheel, whatever lies in the current folder."""
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
