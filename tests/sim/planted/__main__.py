"""The table of planted bugs: `python -m tests.sim.planted [NAME...]`.

It plays each bug's scene, then draws runs until one breaks a promise that holds without the bug.
It prints a line for each bug. Exit code: 1 if a bug was not found within `--limit` runs, else 0.

With `--judges` a line has the judge that found the bug in its scene, and the judge that finds it
without that one. `--write` writes the tables of docs/simulation.md instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context

from simulation.judges import ALL, KINDS
from tests.sim.planted.bugs import BUGS
from tests.sim.planted.finding import KINDS_OF_RUNS, Found, broken_by, find_named
from tests.sim.planted.scenes import SCENE_OF
from tests.sim.planted.tables import PAGE, with_tables

LIMIT = 500
Asked = tuple[str, int, int, Sequence[str]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="RUNS")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--runs-of", nargs="+", choices=KINDS_OF_RUNS, default=KINDS_OF_RUNS, help="default: all"
    )
    parser.add_argument("--judges", action="store_true", help="switch judges off, in scenes")
    parser.add_argument("--write", action="store_true", help="write the tables of the docs")
    options = parser.parse_args(arguments)
    if options.write:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    unknown = [name for name in options.names if name not in BUGS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not a planted bug; allowed are {', '.join(BUGS)}")
    names = options.names or list(BUGS)
    if options.judges:
        return _switch_off(names)
    asked = [(name, options.first, options.limit, options.runs_of) for name in names]
    missed = 0
    print(
        "| bug | part | fault | promise | found by | runs |",
        "|---|---|---|---|---|---|",
        sep="\n",
    )
    with _results(asked, options.jobs) as results:
        for found in results:
            missed += not found.where
            print(_row(found), flush=True)
    print(f"\n{len(asked) - missed} of {len(asked)} bugs were found within {options.limit} runs")
    return 1 if missed else 0


@contextmanager
def _results(asked: list[Asked], jobs: int) -> Iterator[Iterator[Found]]:
    if jobs == 1:
        yield map(find_named, asked)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield pool.imap(find_named, asked)


def _row(found: Found) -> str:
    bug = BUGS[found.name]
    where = found.where or "nothing"
    return f"| {bug.name} | {bug.family} | {bug.text} | {found.code} | {where} | {found.runs} |"


def _switch_off(names: Sequence[str]) -> int:
    """Print the judge that finds each bug first, and the next one without that judge."""
    needed: dict[str, int] = dict.fromkeys(KINDS, 0)
    print("| bug | found by | without that judge |\n|---|---|---|")
    for name in names:
        if name not in SCENE_OF:
            continue
        bug, schedule = BUGS[name], SCENE_OF[name].schedule()
        first = broken_by(bug, schedule)
        if first is None:
            continue
        second = broken_by(bug, schedule, ALL - {first.judge})
        needed[first.judge] = needed.get(first.judge, 0) + (second is None)
        told = "none" if second is None else f"{second.judge}: {second.code}"
        print(f"| {name} | {first.judge}: {first.code} | {told} |", flush=True)
    print("\n" + ", ".join(f"{judge}: {count} need it" for judge, count in needed.items()))
    return 1 if 0 in needed.values() else 0


if __name__ == "__main__":
    sys.exit(main())
