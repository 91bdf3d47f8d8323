"""A chaos run of our own cluster with an audit of metadata, replicas, and clients' history."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit import job
from audit.reading.inputs import read_inputs
from testkit.processes.local_cluster import KraftboxCluster

SEED = 7
MINUTES = "0.2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """Return a cluster's folder, its clients' history, and the chaos report."""
    folder = tmp_path_factory.mktemp("chaos")
    directory, history = folder / "cluster", folder / "run.kbxh"
    shape = ("--controllers", "3", "--brokers", "3", "--racks", "a,b")
    cluster = KraftboxCluster(directory, "--port", "0", *shape).start()
    code, complaint = cluster.end()
    assert code == 0, complaint
    done = subprocess.run(
        [sys.executable, "-m", "kraftbox", "chaos", "--dir", str(directory), "--seed", str(SEED)]
        + ["--minutes", MINUTES, "--faults", "kill-leader"]
        + ["--history", str(history), "--partitions", "3", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return directory, history, json.loads(done.stdout)


@pytest.fixture(scope="module")
def audited(
    spark: Any, run: tuple[Path, Path, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    directory, history, report = run
    return job.run(read_inputs([directory], history=[history]), spark).data, report


def test_every_promise_holds(audited: tuple[dict[str, Any], dict[str, Any]]) -> None:
    result = audited[0]
    assert [f for f in result["findings"] if f["severity"] == "error"] == []
    assert len(result["quorum"]["logs"]) >= 3
    assert len(result["data"]) >= 3 and all(one["replicas"] == 3 for one in result["data"][:3])


def test_without_spark_the_document_is_the_same(
    audited: tuple[dict[str, Any], dict[str, Any]], run: tuple[Path, Path, dict[str, Any]]
) -> None:
    """This holds with replicas and a history, too."""
    directory, history, _ = run
    here = job.run_here(read_inputs([directory], history=[history]), width=2)
    assert json.dumps(here.data) == json.dumps(audited[0])


def test_the_killed_leaders_are_in_the_elections(
    audited: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """Our controller notes kind and cause in the record."""
    result, report = audited
    killed = {
        node
        for entry in report["timeline"]
        if entry["kind"] == "kill-leader"
        for node in entry["nodes"]
    }
    assert killed
    away = {e["from_leader"]: e["cause"] for e in result["elections"] if e["kind"] == "isr"}
    assert killed <= away.keys(), away
    assert "unknown" not in away.values()
    assert {e["kind"] for e in result["elections"]} <= {"isr", "preferred"}
    down = {"lost", "registered"}
    for broker in result["brokers"]:
        events = [e["event"] for e in broker["events"]]
        assert broker["id"] not in killed or down & set(events[1:]), events
