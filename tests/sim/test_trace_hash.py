"""The trace of a seed: the same hash in every process, folder, host, year and number of jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from simulation.schedule import draw_schedule
from simulation.swarm import run

ROOT = Path(__file__).resolve().parents[2]
SEED = 7
FAKETIME = [
    path
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
    if (path := Path(folder) / "faketime/libfaketime.so.1").exists()
]
pytestmark = pytest.mark.sim


@cache
def here() -> str:
    """Return the hash in this process."""
    return run(draw_schedule(SEED)).trace


def there(
    environment: Mapping[str, str],
    *,
    folder: Path = ROOT,
    program: Path = ROOT,
    before: Sequence[str] = (),
) -> str:
    """Return the hash in a process of its own; `before` are words in front of its command."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "kraftbox", "sim", "--seed", str(SEED)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(program), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1].rpartition("-")[2]


def elsewhere(tmp_path: Path) -> Path:
    """Return the program under another path."""
    link = tmp_path / "elsewhere"
    link.symlink_to(ROOT)
    return link


def another_host() -> list[str]:
    """Return words that run a command under another host name; none where that is not allowed."""
    words = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    try:
        allowed = subprocess.run([*words, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return words if allowed.returncode == 0 else []


def another_year() -> dict[str, str]:
    """Return an environment in which the clock shows 2031; empty without libfaketime."""
    if not FAKETIME:
        return {}
    return {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": "@2031-03-01 12:00:00"}


def test_everything_around_it_is_another(tmp_path: Path) -> None:
    around = {"PYTHONHASHSEED": "4711", "HOSTNAME": "x", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    program, before = elsewhere(tmp_path), another_host()
    found = there({**around, **another_year()}, folder=tmp_path, program=program, before=before)
    assert found == here()


@pytest.mark.rest
@pytest.mark.parametrize("hash_seed", ["0", "1", "4294967295"])
def test_another_hash_seed(hash_seed: str) -> None:
    assert there({"PYTHONHASHSEED": hash_seed}) == here()


@pytest.mark.rest
def test_another_folder(tmp_path: Path) -> None:
    assert there({}, folder=tmp_path, program=elsewhere(tmp_path)) == here()


@pytest.mark.rest
@pytest.mark.skipif(not another_host(), reason="only root may give a process another host name")
def test_another_host_name() -> None:
    assert there({}, before=another_host()) == here()


@pytest.mark.rest
@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed")
def test_another_year() -> None:
    environment = another_year()
    asked = [sys.executable, "-c", "import time; print(time.gmtime().tm_year)"]
    year = subprocess.run(
        asked, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert year.stdout == "2031\n", "the clock is not faked"
    assert there(environment) == here()


def test_as_if_elsewhere() -> None:
    """Without any tool: clocks, host name and process id are others in this process."""
    assert run(draw_schedule(SEED), disguised=True).trace == here()


def test_trace_does_not_depend_on_earlier_runs() -> None:
    here()
    calm = replace(draw_schedule(SEED), events=(), quiet_from_ms=100)
    assert run(calm).trace != here()
    assert run(draw_schedule(SEED)).trace == here()


@pytest.mark.rest
def test_any_number_of_jobs() -> None:
    traces = []
    for jobs in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "kraftbox", "sim", "--seed", str(SEED)]
            + ["--runs", "2", "--jobs", jobs, "--json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        traces.append([one["trace"] for one in json.loads(done.stdout)["runs"]])
    assert traces[0] == traces[1]
    assert traces[0][0] == here()
