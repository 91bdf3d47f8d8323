"""Hostile requests to a cluster of processes: no node stops, and no unforeseen error is counted.

Covers bad input B1-B51 over all APIs; `fuzz.poison` defines the requests and checks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


def run_poison(directory: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.poison", "--directory", str(directory), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    sys.stdout.write(done.stdout[-20_000:])
    assert done.returncode == 0, done.stderr[-4000:]
    text = done.stdout
    seen: dict[str, Any] = json.loads(text[text.index("{\n") : text.rindex("\n}") + 2])
    return seen


def test_some_poison_stops_no_node(tmp_path: Path) -> None:
    """Twenty seconds: past failures are in the target `poison`, which runs on virtual time."""
    seen = run_poison(
        tmp_path, "--minutes", "0.35", "--controllers", "1", "--calm-seconds", "1", "--seed", "5"
    )
    assert seen["requests"] > 500 and len(seen["by_api"]) > 40
    assert seen["bystander_during"]["requests"] > 0


@pytest.mark.soak
def test_an_hour_of_poison_stops_no_node(tmp_path: Path) -> None:
    seen = run_poison(tmp_path, "--minutes", "60")
    assert seen["requests"] > 500_000
    for first, highest, last in seen["resident_mib"].values():
        assert max(highest, last) < first + 150
