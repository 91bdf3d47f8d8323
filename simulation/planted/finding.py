"""The search for a seed that finds a planted bug."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from simulation.planted.bugs import BUGS
from simulation.planted.planting import Bug
from simulation.schedule import draw_schedule
from simulation.swarm import Broken, run


@dataclass(frozen=True)
class Found:
    """The first seed that finds a bug, None if there is none; `runs` is how many were run with the
    bug, `code` the promise that broke."""

    name: str
    seed: int | None
    runs: int
    code: str
    words: str


def find(bug: Bug, seeds: Iterable[int]) -> Found:
    """Run seeds with the bug until one breaks a promise of the bug's that holds without it."""
    runs = 0
    for seed in seeds:
        runs += 1
        broken = broken_by(bug, seed)
        if broken is not None and run(draw_schedule(seed)).broken is None:
            return Found(bug.name, seed, runs, broken.code, broken.words)
    return Found(bug.name, None, runs, "", "")


def find_named(asked: tuple[str, int, int]) -> Found:
    """`find` for another process: the bug's name, the first seed, how many."""
    name, first, limit = asked
    return find(BUGS[name], range(first, first + limit))


def broken_by(bug: Bug, seed: int) -> Broken | None:
    """What this seed finds of the bug: nothing, if it breaks what the bug does not."""
    broken = run(draw_schedule(seed), planted=[bug.planted]).broken
    if broken is None or not re.match(bug.promise, broken.code):
        return None
    return broken
