"""`kraftbox chaos` that is ended early: its verdict, and the state that it leaves."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftbox.launcher.place import ClusterPlace
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until
from tests.e2e.commands import INTERRUPTIBLE

pytestmark = pytest.mark.e2e

ENDING_S = 120


@pytest.fixture
def place(tmp_path: Path) -> ClusterPlace:
    """Return a node that is down: a run starts it."""
    cluster = KraftboxCluster(tmp_path / "node", "--port", "0").start()
    assert cluster.end() == (0, "")
    return ClusterPlace(tmp_path / "node")


@contextmanager
def chaos(place: ClusterPlace) -> Iterator[subprocess.Popen[str]]:
    """Start a run of ten minutes whose clients write."""
    options = ("--dir", str(place.root), "--minutes", "10", "--faults", "pause-leader")
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "chaos", *options]
        + ["--seed", "1", "--history", str(place.root.parent / "run.kbxh")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if " acknowledged," in line and " 0 acknowledged," not in line:
                break
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_the_faults_and_has_the_rest_judged(place: ClusterPlace) -> None:
    with chaos(place) as process:
        process.send_signal(signal.SIGINT)
        told, complaint = process.communicate(timeout=ENDING_S)
    assert process.returncode == 0, told + complaint
    assert "no more faults" in complaint
    assert "every promise held" in told and (place.root.parent / "run.kbxh").exists()
    assert not place.is_taken


@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGTERM,), 143), ((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGKILL,), -9)],
    ids=["SIGTERM", "Ctrl-C twice", "SIGKILL"],
)
def test_no_cluster_is_left_behind(
    place: ClusterPlace, signals: tuple[signal.Signals, ...], code: int
) -> None:
    with chaos(place) as process:
        process.send_signal(signals[0])
        for number in signals[1:]:
            assert process.stderr is not None
            assert "no more faults" in process.stderr.readline()
            process.send_signal(number)
        told, complaint = process.communicate(timeout=ENDING_S)
    assert process.returncode == code, told + complaint
    assert "Traceback" not in complaint
    until("the directory is let go", lambda: not place.is_taken)
