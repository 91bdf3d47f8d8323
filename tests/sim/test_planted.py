"""Planted bugs: each patch fits the product and is gone after a run.

`make soak` looks for them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.event import Event
from simulation.planted.__main__ import LIMIT, main
from simulation.planted.bugs import BUGS
from simulation.planted.finding import broken_by, find
from simulation.planted.planting import BadPatch, Bug, Patch, _function
from simulation.preload import import_nodes
from simulation.schedule import draw_schedule
from simulation.swarm import run

pytestmark = pytest.mark.sim

THREE_CONTROLLERS = 5
"""A seed with so many."""
QUICK = {
    "vote before disk": (1, "M3"),
    "vote kept in memory": (1, "M3"),
}


def code_of(bug: Bug) -> list[object]:
    return [_function(patch.place).__code__ for patch in bug.patches]


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_in_the_product_for_the_run_alone(name: str) -> None:
    import_nodes()
    bug = BUGS[name]
    before = code_of(bug)
    with bug.planted():
        assert all(old is not new for old, new in zip(before, code_of(bug), strict=True))
    assert code_of(bug) == before


@pytest.mark.parametrize("old", ["there is no such text", "self"])
def test_a_piece_that_is_not_there_once_is_refused(old: str) -> None:
    place = "broker.replication.partition:Partition.wait_for_commit"
    bug = Bug("b", "log", "", "P1", (Patch(place, old, "pass"),))
    with pytest.raises(BadPatch, match="times"), bug.planted():
        pass


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    seed, code = QUICK[name]
    broken = broken_by(BUGS[name], seed)
    assert broken is not None and broken.code == code, broken


def test_a_leader_that_hears_of_no_majority_is_found() -> None:
    """M17: its network is cut for longer than it may lead then, and clients know nothing of it."""
    cut = Event("e", 500, "cut", "active controller", {"for_ms": 9000, "from": "controllers"})
    drawn = draw_schedule(THREE_CONTROLLERS)
    assert len(drawn.shape.controllers) == 3
    schedule = replace(drawn, events=(cut,), quiet_from_ms=9600)
    assert run(schedule).broken is None
    broken = run(schedule, planted=[BUGS["leader without majority"].planted]).broken
    assert broken is not None and broken.code == "M17"


def test_a_bug_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["luck"])
    assert "'luck' is no planted bug" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("name", BUGS)
def test_every_planted_bug_is_found(name: str) -> None:
    assert find(BUGS[name], range(1, LIMIT + 1)).seed is not None
