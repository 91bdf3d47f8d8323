"""Coverage of many runs: counts of rare branches, and tables of those never reached."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.marks import MARKS
from simulation import command
from simulation.command import Options
from simulation.coverage import coverage_lines, unhit
from simulation.event import Event
from simulation.schedule import Schedule
from simulation.shapes.shape import ClientShape, DiskShape, LinkShape, NodeShape, Shape, TopicShape
from simulation.swarm import run

pytestmark = pytest.mark.sim


def three(*events: Event) -> Schedule:
    """Return a schedule with three combined nodes."""
    shape = Shape(
        nodes=tuple(NodeShape(number, ("controller", "broker")) for number in (1, 2, 3)),
        topics=(TopicShape("t0", 1, 3, {"min.insync.replicas": "2"}),),
        settings={
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "200",
            "controller.quorum.fetch.timeout.ms": "1000",
            "controller.quorum.election.timeout.ms": "500",
            "kraftbox.broker.connection.loss.fence.ms": "0",
            "replica.lag.time.max.ms": "1500",
        },
        link=LinkShape(),
        disk=DiskShape(),
        clients=(ClientShape("acks all", "acks all", 60.0),),
        faults={},
    )
    return Schedule(5, shape, events, 6000 if events else 500)


def test_a_calm_run_takes_no_rare_branch_that_means_trouble() -> None:
    marks = run(three(), keep=0).marks
    assert not {
        "quorum.leader-resigns-alone",
        "quorum.truncation",
        "replication.truncation",
        "replication.isr-shrinks",
        "log.recovery-cuts",
    } & set(marks)


def test_a_leader_that_is_cut_off_resigns_and_a_paused_follower_leaves_the_isr() -> None:
    cut = Event("e0", 300, "cut", "active controller", {"for_ms": 4000, "from": "all"})
    marks = run(three(cut), keep=0).marks
    assert marks.get("quorum.leader-resigns-alone") == 1
    assert set(marks) <= set(MARKS)


def document(seed: int, **values: Any) -> dict[str, Any]:
    shape = {"controllers": "3", "brokers": "1", "layout": "mixed"}
    empty = {"seed": seed, "shape": shape, "drawn": {}, "took_effect": {}, "marks": {}}
    return {**empty, **values}


def test_the_tables() -> None:
    one, other = list(MARKS)[:2]
    documents = [
        document(7, drawn={"kill": 3, "cut": 1}, took_effect={"kill": 2}),
        document(8, drawn={"kill": 1}, marks={one: 4}),
        document(9, marks={one: 1, other: 1}),
    ]
    lines = coverage_lines(documents)
    cells = {line.split()[0]: line.split() for line in lines if line}
    assert cells["controllers"] == ["controllers", "3:", "3"]
    assert cells["kill"][1:] == ["2", "1", "50%", "4", "2"]
    assert cells["cut"][1:] == ["1", "0", "0%", "1", "0"]
    assert cells[one][1:4] == ["2", "5", "8"]
    assert cells[other][1:4] == ["1", "1", "9"]
    assert unhit(documents) == list(MARKS)[2:]
    assert f"2 of {len(MARKS)} marks were hit" in lines
    assert lines[-1].startswith("never: ")


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(Options(seed=7, runs=1, marks=True, faults="kill")) == 0
    told = capsys.readouterr().out
    assert "kill " in told and "marks were hit" in told and "1 of 1 seeds held" in told
    assert command.main(Options(seed=7, marks=True)) == 2
    assert "--marks prints a table over many runs" in capsys.readouterr().err
