"""Planted bugs: each patch fits the product, is removed after a run, and shows in its scene.

Without the bug every promise holds in the scene. `make soak` covers bugs without a scene.
"""

from __future__ import annotations

import pytest

from simulation import find
from simulation.judges import KINDS
from simulation.preload import import_nodes
from testkit.planting import BadPatch, Bug, Patch, _function
from tests.sim.planted.__main__ import LIMIT, main
from tests.sim.planted.bugs import BUGS
from tests.sim.planted.finding import broken_by, holds, needed
from tests.sim.planted.finding import find as found
from tests.sim.planted.scenes import SCENE_OF, SCENES
from tests.sim.planted.tables import PAGE, with_tables

pytestmark = pytest.mark.sim

QUICK = {
    "answers": "responses overtake",
    "votes": "second vote, other disk",
    "check quorum": "leader without majority",
    "quorum": "quorum high watermark decreases",
    "durable": "leader counts unflushed",
    "partitions": "high watermark at the log end",
    "recoveries": "epoch cache for the last batch",
    "groups": "commit before replication",
    "requests": "no response at the timeout",
    "histories": "acknowledged before replication",
    "tiering": "copied before it is stable",
    "local logs": "empty local log is enough",
    "new replicas": "epoch of the first offset",
}
"""For each judge, a bug that this judge alone finds, or finds first."""


def code_of(bug: Bug) -> list[object]:
    return [_function(patch.place).__code__ for patch in (*bug.situation, *bug.patches)]


@pytest.mark.parametrize("name", BUGS)
def test_patches_apply_and_are_removed_after_the_run(name: str) -> None:
    import_nodes()
    bug = BUGS[name]
    before = code_of(bug)
    with bug.planted():
        assert all(old is not new for old, new in zip(before, code_of(bug), strict=True))
    assert code_of(bug) == before


@pytest.mark.parametrize("old", ["there is no such text", "self"])
def test_patch_whose_piece_does_not_occur_once_is_refused(old: str) -> None:
    place = "broker.replication.partition.partition:Partition.wait_for_commit"
    bug = Bug("b", "log", "", "P1", (Patch(place, old, "pass"),))
    with pytest.raises(BadPatch, match="times"), bug.planted():
        pass


@pytest.mark.parametrize("judge", QUICK)
def test_judge_finds_its_planted_bug(judge: str) -> None:
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
def test_scene_finds_its_planted_bug(name: str) -> None:
    assert broken_by(BUGS[name], SCENE_OF[name].schedule()) is not None


@pytest.mark.rest
@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if not scene.slow])
def test_scene_without_a_bug_breaks_no_promise(name: str) -> None:
    for bug in (BUGS[one] for one in SCENES[name].bugs):
        if bug.situation:
            assert holds(bug, SCENES[name].schedule()), bug.name
    assert holds(Bug("none", "", "", "", ()), SCENES[name].schedule())


def test_every_bug_has_one_scene() -> None:
    shown = [bug for scene in SCENES.values() for bug in scene.bugs]
    assert sorted(shown) == sorted(BUGS)


def test_tables_of_the_docs_are_as_generated() -> None:
    """The command `python -m tests.sim.planted --write` writes both tables of the page."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page)


def test_tables_of_the_docs_have_every_bug_and_every_find() -> None:
    """A page without rows gets one for each planted bug and each recorded find."""
    empty = "".join(f"<!-- {one} -->\n<!-- end of {one} -->\n" for one in ("planted bugs", "finds"))
    rows = {line.split(" | ")[0].strip("| ") for line in with_tables(empty).splitlines()}
    assert rows >= {*BUGS, *find.names()}


def test_unknown_bug_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["luck"])
    assert "'luck' is not a planted bug" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("name", BUGS)
def test_every_planted_bug_is_found(name: str) -> None:
    assert found(BUGS[name], 1, LIMIT).where


@pytest.mark.soak
@pytest.mark.parametrize("judge", KINDS)
def test_every_judge_is_needed_by_a_bug(judge: str) -> None:
    assert any(needed(BUGS[name], judge) for name in SCENE_OF)
