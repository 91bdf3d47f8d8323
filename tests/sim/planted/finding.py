"""The search for a run that finds a planted bug.

It plays the bug's scene, then small clusters under the faults of the scene, then the general swarm.
"""

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
"""Number of runs of a small cluster before the general swarm."""
KINDS_OF_RUNS = ("scene", "focused", "general")
"""The bug's scene, small clusters under the scene's faults, and schedules of `kraftbox sim`."""


@dataclass(frozen=True)
class Found:
    """The first run that finds a bug. `where` is "" if no run did, `runs` counts runs with the bug,
    `code` is the broken promise, `judge` the judge that found it."""

    name: str
    where: str
    runs: int
    code: str = ""
    judge: str = ""


def find(bug: Bug, first: int, limit: int, kinds: Sequence[str] = KINDS_OF_RUNS) -> Found:
    """Run with the bug until one of its promises breaks that holds without the bug.

    Args:
        first: the first seed of drawn runs.
        limit: the number of drawn runs.
        kinds: the kinds of runs to try, of `KINDS_OF_RUNS`.
    """
    runs = 0
    for where, schedule in _candidates(bug, first, limit, kinds):
        runs += 1
        broken = broken_by(bug, schedule)
        if broken is not None and holds(bug, schedule):
            return Found(bug.name, where, runs, broken.code, broken.judge)
    return Found(bug.name, "", runs)


def find_named(asked: tuple[str, int, int, Sequence[str]]) -> Found:
    """Call `find` in a worker process with (bug's name, first seed, limit, kinds of runs)."""
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
    """Run with the bug. Returns: the broken promise if it is one of the bug's, else None."""
    broken = run(schedule, judges, planted=[bug.planted], keep=0).broken
    if broken is None or not re.match(bug.promise, broken.code):
        return None
    return broken


def holds(bug: Bug, schedule: Schedule) -> bool:
    """Return whether every promise holds in this run without the bug."""
    return run(schedule, planted=[bug.without], keep=0).broken is None


def needed(bug: Bug, judge: str) -> bool:
    """Return whether the bug's scene finds nothing without this judge."""
    return broken_by(bug, SCENE_OF[bug.name].schedule(), ALL - {judge}) is None
