"""The search for a run that finds a planted bug: its scene, then small clusters under the faults of
its scene, then the general swarm."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from simulation.judges import ALL
from simulation.schedule import Schedule, draw_schedule
from simulation.swarm import Broken, run
from testkit.planting import Bug
from tests.sim.planted.bugs import BUGS
from tests.sim.planted.scenes import SCENE_OF

FOCUSED = 100
"""So many runs of a small cluster before the general swarm is asked."""
KINDS_OF_RUNS = ("scene", "focused", "general")
"""The bug's scene; small clusters under its faults; what `kraftbox sim` draws."""


@dataclass(frozen=True)
class Found:
    """The first run that finds a bug, "" if there is none; `runs` is how many were run with the
    bug, `code` the promise that broke, `judge` who saw it."""

    name: str
    where: str
    runs: int
    code: str = ""
    judge: str = ""


def find(bug: Bug, first: int, limit: int, kinds: Sequence[str] = KINDS_OF_RUNS) -> Found:
    """Run with the bug until a promise of the bug's breaks that holds without it.

    Args:
        kinds: of `KINDS_OF_RUNS`, which runs are tried.
    """
    runs = 0
    for where, schedule in _candidates(bug, first, limit, kinds):
        runs += 1
        broken = broken_by(bug, schedule)
        if broken is not None and holds(bug, schedule):
            return Found(bug.name, where, runs, broken.code, broken.judge)
    return Found(bug.name, "", runs)


def find_named(asked: tuple[str, int, int, Sequence[str]]) -> Found:
    """`find` for another process: the bug's name, the first seed, how many, which runs."""
    name, first, limit, kinds = asked
    return find(BUGS[name], first, limit, kinds)


def _candidates(
    bug: Bug, first: int, limit: int, kinds: Sequence[str]
) -> Iterator[tuple[str, Schedule]]:
    scene = SCENE_OF.get(bug.name)
    if scene is not None and "scene" in kinds:
        yield "its scene", scene.schedule()
    if scene is not None and "focused" in kinds:
        last = first + (min(limit, FOCUSED) if "general" in kinds else limit)
        for seed in range(first, last):
            yield f"focused seed {seed}", scene.draw(seed)
        limit -= last - first
    if "general" in kinds:
        for seed in range(first, first + limit):
            yield f"seed {seed}", draw_schedule(seed)


def broken_by(bug: Bug, schedule: Schedule, judges: Collection[str] = ALL) -> Broken | None:
    """What this run finds of the bug: nothing, if it breaks what the bug does not."""
    broken = run(schedule, judges, planted=[bug.planted], keep=0).broken
    if broken is None or not re.match(bug.promise, broken.code):
        return None
    return broken


def holds(bug: Bug, schedule: Schedule) -> bool:
    """Whether every promise holds in this run without the bug."""
    return run(schedule, planted=[bug.without], keep=0).broken is None


def needed(bug: Bug, judge: str) -> bool:
    """Whether the bug's scene finds nothing when this judge is switched off."""
    return broken_by(bug, SCENE_OF[bug.name].schedule(), ALL - {judge}) is None
