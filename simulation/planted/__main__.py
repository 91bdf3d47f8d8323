"""The table of planted bugs: `python -m simulation.planted [NAME...]`.

For each bug, seeds are run until one breaks a promise that it keeps without the bug. Prints a line
for each; exit code 1 if a bug was not found within `--limit` seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context

from simulation.planted.bugs import BUGS
from simulation.planted.finding import Found, find_named

LIMIT = 500


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.planted")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="SEEDS")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BUGS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no planted bug; there are {', '.join(BUGS)}")
    asked = [(name, options.first, options.limit) for name in options.names or BUGS]
    missed = 0
    print(
        "| bug | part | what is wrong | broken promise | seed | seeds |\n|---|---|---|---|---|---|"
    )
    with _results(asked, options.jobs) as results:
        for found in results:
            missed += found.seed is None
            print(_row(found), flush=True)
    print(f"\n{len(asked) - missed} of {len(asked)} bugs were found within {options.limit} seeds")
    return 1 if missed else 0


@contextmanager
def _results(asked: list[tuple[str, int, int]], jobs: int) -> Iterator[Iterator[Found]]:
    if jobs == 1:
        yield map(find_named, asked)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield pool.imap(find_named, asked)


def _row(found: Found) -> str:
    bug = BUGS[found.name]
    seed = "none" if found.seed is None else str(found.seed)
    return f"| {bug.name} | {bug.family} | {bug.text} | {found.code} | {seed} | {found.runs} |"


if __name__ == "__main__":
    sys.exit(main())
