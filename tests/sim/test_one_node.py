"""One node in a simulated world: seeds, and equal traces for equal seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import run
from simulation.world.trace import first_difference

pytestmark = pytest.mark.sim

SEEDS = range(1, 33)
SOAK_SEEDS = range(1000, 1500)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", [*SEEDS, *run.known_seeds()])
def test_promises_are_kept(seed: int) -> None:
    result = run.run(seed)
    assert result.counts["check"] >= 2
    assert result.boots >= 4


@pytest.mark.soak
def test_promises_are_kept_for_long() -> None:
    assert run.main(["--seeds", f"{SOAK_SEEDS.start}-{SOAK_SEEDS.stop - 1}"]) == 0


def test_equal_seeds_give_equal_traces() -> None:
    one, again, other = run.run(7).trace, run.run(7).trace, run.run(8).trace
    assert first_difference(one, again) is None
    assert one.digest() == again.digest()
    assert one.digest() != other.digest()


@pytest.mark.rest
def test_another_process_on_another_machine_sees_the_same() -> None:
    """Neither the hash seed nor the host's name, the date or the process id reaches a trace."""
    command = [sys.executable, "-m", "simulation.run", "--seeds", "7,9", "--digests", "--disguised"]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [f"{seed} {run.run(seed).trace.digest()}" for seed in (7, 9)]
    assert done.stdout.splitlines() == expected
