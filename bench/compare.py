"""Comparison of the microbenchmarks before and after a change: `make bench-compare REF=commit`.

    python -m bench.compare REF [--cases produce_path,fetch_path] [--rounds 5] [--json FILE]

Each round runs the microbenchmarks of the commit, of this working tree, and of the commit again.
The difference between the commit's two results is the noise; a drift of the machine affects all
three. A row is slower if its median ratio exceeds 1 by more than the noise of any round, and every
round's ratio exceeds it by 2 %. Processes differ by that much because of the placement of their
memory. Exit code 1: a row is slower; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from testkit.processes.ending import end_on_sigterm, output_of

TREE: Final = Path(__file__).resolve().parent.parent
CASES: Final = ("produce_path", "fetch_path", "codec", "transport")
LEAST: Final = 0.02
"""On an idle machine, two processes with the same code differ by this ratio."""
ROW: Final = re.compile(r"^(?P<name>\S.*?) {2,}.*?(?P<us>[\d.]+) us$")
"""A row of a microbenchmark; the last figure is the sum."""

Figures = Mapping[str, float]
"""Microseconds by row."""


class Round(NamedTuple):
    """One row in one round, in microseconds: the commit, the tree, the commit again."""

    before: float
    tree: float
    after: float

    @property
    def ratio(self) -> float:
        return 2 * self.tree / (self.before + self.after)

    @property
    def noise(self) -> float:
        """Half of the relative difference of the commit's figures.

        The ratio refers to their mean.
        """
        return abs(self.after - self.before) / (self.after + self.before)


class Verdict(NamedTuple):
    """The summary of a row: medians, the least and the largest ratio, the largest noise."""

    name: str
    commit_us: float
    tree_us: float
    ratio: float
    least: float
    most: float
    noise: float

    @property
    def word(self) -> str:
        """`slower`, `faster`, or empty if the difference may be noise."""
        if abs(self.ratio - 1.0) <= self.noise:
            return ""
        if self.least > 1.0 + LEAST:
            return "slower"
        return "faster" if self.most < 1.0 - LEAST else ""


def figures_of(output: str) -> dict[str, float]:
    """Return the rows of a microbenchmark's output; other lines are ignored."""
    rows = (ROW.match(line) for line in output.splitlines())
    return {row["name"]: float(row["us"]) for row in rows if row is not None}


def judged(name: str, rounds: Sequence[Round]) -> Verdict:
    """Return the summary of one row's rounds."""
    ratios = [one.ratio for one in rounds]
    return Verdict(
        name,
        statistics.median((one.before + one.after) / 2 for one in rounds),
        statistics.median(one.tree for one in rounds),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        max(one.noise for one in rounds),
    )


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| | commit: µs | tree: µs | ratio | rounds | noise | |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in verdicts:
        lines.append(
            f"| {one.name} | {one.commit_us:.2f} | {one.tree_us:.2f} | {one.ratio:.3f} "
            f"| {one.least:.3f}-{one.most:.3f} | {one.noise:.3f} | {one.word} |"
        )
    return "\n".join(lines)


@contextmanager
def tree_of(ref: str) -> Iterator[Path]:
    """Check the commit out into a temporary folder.

    Raises SystemExit if there is no such commit.
    """
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as place:
        folder = Path(place) / "tree"
        git = ("git", "-C", str(TREE))
        made = subprocess.run(
            [*git, "worktree", "add", "--quiet", "--detach", str(folder), ref],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise SystemExit(f"no tree of {ref!r}: {made.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(folder)], check=True)


def measured(tree: Path, case: str) -> Figures:
    """Run a tree's own microbenchmark. Raises CalledProcessError if it fails."""
    output = output_of(
        [sys.executable, "-m", f"bench.{case}"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
    )
    return figures_of(output)


def compared(commit: Path, cases: Sequence[str], rounds: int) -> list[Verdict]:
    """Return the rows that both trees have; cases that the commit lacks are skipped."""
    found: dict[str, list[Round]] = {}
    known = [case for case in cases if (commit / "bench" / f"{case}.py").exists()]
    for number in range(rounds):
        for case in known:
            print(f"{case}, round {number + 1}", file=sys.stderr, flush=True)
            before, tree, after = (measured(one, case) for one in (commit, TREE, commit))
            for name in tree:
                if name in before and name in after:
                    row = Round(before[name], tree[name], after[name])
                    found.setdefault(f"{case}: {name}", []).append(row)
    return [judged(name, rows) for name, rows in found.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref", help="commit to compare this working tree with")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args(arguments)
    cases = options.cases.split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"unknown case: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be at least 1")
    with tree_of(options.ref) as commit:
        verdicts = compared(commit, cases, options.rounds)
    if options.json:
        rows = [{**one._asdict(), "word": one.word} for one in verdicts]
        options.json.write_text(json.dumps(rows, indent=1))
    print(table(verdicts))
    slower = [one.name for one in verdicts if one.word == "slower"]
    print(f"\n{len(slower)} of {len(verdicts)} rows are slower by more than the noise")
    return 1 if slower else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
