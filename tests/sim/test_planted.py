"""Planted bugs: each patch fits the product, is removed after a run, and shows in its scene.

Without the bug every promise holds in the scene. `make soak` covers bugs without a scene.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.judges import KINDS
from simulation.preload import import_nodes
from testkit.planting import BadPatch, Bug, Patch, _function
from tests.sim.planted.__main__ import LIMIT, main
from tests.sim.planted.bugs import BUGS
from tests.sim.planted.finding import broken_by, find, holds, needed
from tests.sim.planted.scenes import SCENE_OF, SCENES

pytestmark = pytest.mark.sim

QUICK = {
    "answers": "answers overtake",
    "votes": "second vote, other disk",
    "check quorum": "leader without majority",
    "quorum": "quorum mark falls",
    "durable": "leader counts unflushed",
    "partitions": "shows all it has",
    "recoveries": "epoch cache for the last batch",
    "groups": "commit before replication",
    "requests": "no answer at the deadline",
    "histories": "acknowledged at once",
    "tiering": "copied before it is stable",
    "local logs": "nothing is enough",
    "new replicas": "epoch of the first offset",
}
"""For each judge, a bug that only this judge finds, or that it finds first; the others are for the
rest."""


def code_of(bug: Bug) -> list[object]:
    return [_function(patch.place).__code__ for patch in (*bug.situation, *bug.patches)]


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
    place = "broker.replication.partition.partition:Partition.wait_for_commit"
    bug = Bug("b", "log", "", "P1", (Patch(place, old, "pass"),))
    with pytest.raises(BadPatch, match="times"), bug.planted():
        pass


@pytest.mark.parametrize("judge", QUICK)
def test_a_judge_sees_a_planted_bug(judge: str) -> None:
    name = QUICK[judge]
    broken = broken_by(BUGS[name], SCENE_OF[name].schedule())
    assert broken is not None and broken.judge == judge, broken


SHOWN = [
    name
    for name, scene in SCENE_OF.items()
    if not scene.slow and name not in QUICK.values() and BUGS[name].family != "leaks"
]
"""Leaks get two virtual minutes to end; `test_leftovers` plants leaks that show at once."""


@pytest.mark.rest
@pytest.mark.parametrize("name", SHOWN)
def test_a_planted_bug_shows_in_its_scene(name: str) -> None:
    assert broken_by(BUGS[name], SCENE_OF[name].schedule()) is not None


@pytest.mark.rest
@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if not scene.slow])
def test_a_scene_holds_without_a_bug(name: str) -> None:
    for bug in (BUGS[one] for one in SCENES[name].bugs):
        if bug.situation:
            assert holds(bug, SCENES[name].schedule()), bug.name
    assert holds(Bug("none", "", "", "", ()), SCENES[name].schedule())


def test_a_bug_has_one_scene_at_most() -> None:
    shown = [bug for scene in SCENES.values() for bug in scene.bugs]
    assert len(shown) == len(set(shown)) and set(shown) <= set(BUGS)


def test_the_table_has_each_bug_and_its_scene() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    table = text.partition("<!-- scenes -->")[2].partition("<!-- end of scenes -->")[0]
    rows = {tuple(row.strip("| ").split(" | ")[:4]) for row in table.strip().splitlines()[2:]}
    scenes = {bug: name for name, scene in SCENES.items() for bug in scene.bugs}
    assert rows == {(bug.name, bug.family, bug.text, scenes[name]) for name, bug in BUGS.items()}


def test_a_bug_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["luck"])
    assert "'luck' is no planted bug" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("name", BUGS)
def test_every_planted_bug_is_found(name: str) -> None:
    assert find(BUGS[name], 1, LIMIT).where


@pytest.mark.soak
@pytest.mark.parametrize("judge", KINDS)
def test_every_judge_is_needed_by_a_bug(judge: str) -> None:
    assert any(needed(BUGS[name], judge) for name in SCENE_OF)
