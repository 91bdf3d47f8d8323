"""Run groups of tests side by side, and say at the end what failed, took long, and was skipped.

Groups that compute are cut into shards, one for each of two processors. Beside them run those that
mostly wait for nodes and foreign programs, one after the other, because their tests look at a
clock; where both want the processor, they have it. A processor that has nothing left to compute
takes one of these, too. Each lane has ports of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPUTING = {"unit": 2, "property": 2, "golden": 1, "scenarios": 1, "sim": 2, "spark": 1}
"""Groups that compute, quick ones first, and in how many parts."""
WAITING = ("badinput", "interop", "e2e", "compose")
IN_ORDER = ("interop", "e2e", "compose")
"""Their tests run in the order of their files: they share clusters and containers, and what takes
minutes of real processes must fail the same way twice. The others run in a random order, whose seed
is printed."""
CHOSEN = ("interop", "e2e", "spark", "compose")
"""Groups of which `make test` runs only the tests with the mark `core`. Of the others it runs all
but those with the mark `rest`."""
QUICK = ("unit", "golden", "scenarios")
SUITES = ("quick", "core", "rest", "soak")
LANES = 2
NICE = ("nice", "-n", "5")
"""For groups that compute beside others: a quarter of a processor is left to them where both want
it, so that neither misses what it waits for."""
SEED = random.SystemRandom().randrange(2**31)
"""Of the order of tests in this run. Printed first: with it a group runs in that order again."""
TEST_S = 600
"""A test that takes longer hangs: it fails, and pytest shows where. Those of the soak may take so
long."""
PLUGINS = True
"""Whether pytest has the plug-ins that know of both."""
PORTS = (20_000, 30_000)
"""Given out to the lanes in equal parts (KRAFTBOX_PORTS)."""
CHATTER = re.compile(r"%\d\|")
"""librdkafka tells on standard error of each connection that a killed node refuses: thousands of
lines that say FAIL and mean nothing."""
DURATION = re.compile(r"(\d+\.\d+)s (call|setup|teardown) +(\S.*)")
COUNTED = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")
BROKEN = re.compile(r"(FAILED|ERROR) tests/")
CLOSING = re.compile(r"\d+ [a-z]+.* in \d+\.\d+s")
REPEATED_LINES = 150
"""So much of a failed group's report is printed again at the end, where it is looked for."""
SLOWEST = 10
NOTHING_SELECTED = 5


@dataclass(frozen=True, slots=True)
class Job:
    """One run of pytest: a group or one of its parts, and the expression that selects its tests."""

    group: str
    marks: str
    part: int = 1
    parts: int = 1

    @property
    def name(self) -> str:
        return self.group if self.parts == 1 else f"{self.group} {self.part}/{self.parts}"

    @property
    def command(self) -> list[str]:
        options = ["-q", "-rsfE", "-m", self.marks, f"--durations={SLOWEST}", "--durations-min=1"]
        if self.group in IN_ORDER:
            options += ["-p", "no:randomly"]
        elif PLUGINS:
            options.append(f"--randomly-seed={SEED}")
        if PLUGINS and self.marks != "soak":
            options.append(f"--timeout={TEST_S}")
        if self.parts > 1:
            options += ["--shard", f"{self.part}/{self.parts}"]
        return [sys.executable, "-m", "pytest", *options, f"tests/{self.group}"]


@dataclass(slots=True)
class Result:
    """What one run of pytest said. `report` begins where failures are told."""

    job: Job
    code: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    report: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Take in one line of pytest's output."""
        if line.startswith("SKIPPED"):
            self.skipped.append(line.strip())
        elif BROKEN.match(line):
            self.broken.append(line.strip())
        elif match := DURATION.match(line):
            self.slowest.append((float(match[1]), f"{match[3].strip()} ({match[2]})"))
        elif CLOSING.match(line):
            for count, what in COUNTED.findall(line):
                kind = {"xfailed": "passed", "skipped": "skipped", "passed": "passed"}.get(what)
                self.counts[kind or "failed"] += int(count)
        if self.report or line.startswith("===="):
            self.report.append(line)

    @property
    def failed(self) -> bool:
        return self.code not in (0, NOTHING_SELECTED)


def all_groups() -> list[str]:
    """The folders of tests."""
    files = (ROOT / "tests").glob("*/**/test_*.py")
    return sorted({path.relative_to(ROOT / "tests").parts[0] for path in files})


def groups_with(mark: str) -> list[str]:
    """Groups of which some test has the mark."""
    return [group for group, marks in _marks(ROOT).items() if mark in marks]


@cache
def _marks(root: Path) -> dict[str, set[str]]:
    """The marks that the files of each group name."""
    found: dict[str, set[str]] = {group: set() for group in all_groups()}
    for group, marks in found.items():
        for path in (root / "tests" / group).rglob("test_*.py"):
            marks.update(re.findall(r"\bmark\.(\w+)", path.read_text(encoding="utf-8")))
    return found


def selection(suite: str) -> dict[str, str]:
    """Group to the expression that selects its tests. What is in `core` is not in `rest`, and the
    two are all that is not `soak`."""
    if suite == "soak":
        return dict.fromkeys(groups_with("soak"), "soak")
    if suite == "quick":
        return dict.fromkeys(QUICK, "not slow and not rest and not soak")
    chosen = set(CHOSEN) & set(all_groups())
    marked = {"core": set(groups_with("core")) & chosen, "rest": set(groups_with("rest"))}[suite]
    whole = set(all_groups()) - chosen if suite == "core" else chosen
    other = "rest" if suite == "core" else "core"
    return {
        **dict.fromkeys(sorted(whole), f"not {other} and not soak"),
        **dict.fromkeys(sorted(marked - whole), f"{suite} and not soak"),
    }


def jobs(selected: dict[str, str]) -> tuple[list[Job], list[Job]]:
    """Those that compute and those that wait, in the order in which they are begun. A group that
    nobody ordered is taken for one that waits."""
    computing = [
        Job(group, selected[group], part + 1, parts)
        for group, parts in COMPUTING.items()
        if group in selected
        for part in range(parts)
    ]
    others = sorted(set(selected) - set(COMPUTING) - set(WAITING))
    waiting = [Job(g, selected[g]) for g in (*others, *WAITING) if g in selected]
    return computing, waiting


class Runner:
    """Runs jobs in lanes and passes on what they say."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_ended = False

    def run(self, computing: Sequence[Job], waiting: Sequence[Job]) -> list[Result]:
        """All of them; the results of these."""
        before = len(self.results)
        computes, waits = deque(computing), deque(waiting)
        kinds = [(computes, waits)] * LANES + [(waits,)]
        lanes = [
            threading.Thread(target=self._lane, args=(queues, lane))
            for lane, queues in enumerate(kinds)
        ]
        for lane in lanes:
            lane.start()
        try:
            for lane in lanes:
                lane.join()
        except BaseException:
            # SIGTERM or Ctrl-C: their fixtures stop the nodes that they have started.
            with self._lock:
                self._is_ended = True
                for process in self._running:
                    process.terminate()
            for lane in lanes:
                lane.join()
            raise
        return self.results[before:]

    def _lane(self, queues: Sequence[deque[Job]], lane: int) -> None:
        for queue in queues:
            while True:
                with self._lock:
                    if not queue or self._is_ended:
                        break
                    job = queue.popleft()
                result = self._one(job, lane, yields=job.group in COMPUTING)
                with self._lock:
                    self.results.append(result)

    def _one(self, job: Job, lane: int, yields: bool) -> Result:
        result = Result(job)
        started = time.monotonic()
        size = (PORTS[1] - PORTS[0]) // (LANES + 1)
        low = PORTS[0] + lane * size
        with subprocess.Popen(
            [*(NICE if yields else []), *job.command],
            cwd=ROOT,
            env={**os.environ, "KRAFTBOX_PORTS": f"{low}-{low + size}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            with self._lock:
                self._running.add(process)
                if self._is_ended:
                    process.terminate()
            assert process.stdout is not None
            for line in process.stdout:
                if CHATTER.match(line):
                    continue
                result.hear(line)
                with self._lock:
                    sys.stdout.write(f"{job.name:12}| {line}")
                    sys.stdout.flush()
        with self._lock:
            self._running.discard(process)
        result.code = process.returncode
        result.seconds = time.monotonic() - started
        return result


def empty(results: Iterable[Result]) -> set[tuple[str, str]]:
    """Groups and expressions that selected no test in any part: nobody has the mark any more."""
    ran: dict[tuple[str, str], bool] = {}
    for result in results:
        key = (result.job.group, result.job.marks)
        ran[key] = ran.get(key, False) or result.code != NOTHING_SELECTED
    return {key for key, any_test in ran.items() if not any_test}


def closing_line(results: Sequence[Result]) -> str:
    """The sums over all groups. Errors are failures, and so is each part of a group that ended in
    another way than with a failure of a test, or selected nothing at all."""
    counts: Counter[str] = sum((result.counts for result in results), Counter())
    counts["failed"] += sum(1 for r in results if r.failed and not r.counts["failed"])
    counts["failed"] += len(empty(results))
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))


def tell(results: Sequence[Result]) -> None:
    """What failed, which tests took longest, what each group took and what it skipped."""
    for result in results:
        if result.failed:
            print(f"== what failed in {result.job.name}")
            sys.stdout.writelines(result.report[-REPEATED_LINES:])
    print(f"== the slowest {SLOWEST}")
    slowest = sorted((one for result in results for one in result.slowest), reverse=True)
    for seconds, test in slowest[:SLOWEST]:
        print(f"{seconds:7.1f} s {test}")
    print("== summary")
    unselected = empty(results)
    for result in results:
        job = result.job
        nothing = (job.group, job.marks) in unselected
        verdict = "FAILED" if result.failed or nothing else "ok    "
        print(f"{verdict} {job.name:12} {result.seconds:7.1f} s")
        if nothing:
            print(f"         no test of tests/{job.group} is selected by {job.marks!r}")
        for line in (*result.skipped, *result.broken):
            print(f"         {line}")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite",
        action="append",
        choices=SUITES,
        help="core: `make test`; rest: what that leaves; several run one after the other",
    )
    parser.add_argument("groups", nargs="*", help="groups by name, all of each but soak")
    options = parser.parse_args(arguments)
    known = all_groups()
    unknown = sorted(set(options.groups) - set(known))
    if unknown:
        parser.error(f"no group is called {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    suites = options.suite or ([] if options.groups else ["core", "rest"])
    stages = [(suite, selection(suite)) for suite in suites]
    if options.groups:
        stages = [
            (suite, {g: marks for g, marks in selected.items() if g in options.groups})
            for suite, selected in stages
        ] or [("named groups", dict.fromkeys(options.groups, "not soak"))]
    runner = Runner()
    failed = False
    for number, (name, selected) in enumerate(stages):
        print(f"== {name}, seed {SEED}: {', '.join(selected) or 'nothing'}", flush=True)
        computing, waiting = jobs(selected)
        results = runner.run(computing, waiting)
        missing = len(computing) + len(waiting) - len(results)
        failed = not results or missing > 0 or any(r.failed for r in results)
        failed = failed or bool(empty(results))
        if failed and number + 1 < len(stages):
            left = ", ".join(name for name, _ in stages[number + 1 :])
            print(f"== not run, because {name} failed: {left}")
            break
    tell(runner.results)
    print(closing_line(runner.results))
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
