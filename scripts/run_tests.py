"""Run groups of tests in parallel, and report failures, slow tests and skips at the end.

Groups that compute are cut into shards, one for each of two processors. In parallel, groups that
mostly wait for nodes and foreign programs run one after the other, because their tests measure
time; they have priority for the processor. A lane that has no computing group left takes one of
these groups, too. Each lane has its own range of ports.
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
"""Groups that compute, quick ones first, and their number of shards."""
WAITING = ("badinput", "interop", "e2e", "compose")
IN_ORDER = ("interop", "e2e", "compose")
"""Groups whose tests run in the order of their files. They share clusters and containers, and a
failure after minutes of real processes must be reproducible. Other groups run in a random order,
whose seed is printed."""
CHOSEN = ("interop", "e2e", "spark", "compose")
"""Groups of which `make test` runs only the tests with the mark `core`. Of the other groups it runs
all tests but those with the mark `rest`."""
QUICK = ("unit", "golden", "scenarios")
SUITES = ("quick", "core", "rest", "soak")
LANES = 2
NICE = ("nice", "-n", "5")
"""Command prefix of groups that compute: it leaves these a quarter of a contended processor, so
that tests with time limits keep them."""
SEED = random.SystemRandom().randrange(2**31)
"""Seed of the order of tests, printed first: with it a group runs in the same order again."""
TEST_S = 600
"""Seconds until a test counts as hanging: it fails, and pytest shows its stack. Tests of the soak
have no such limit."""
PLUGINS = True
"""True if pytest has the plug-ins for random order and timeouts."""
PORTS = (20_000, 30_000)
"""Range of ports, divided equally among the lanes (KRAFTBOX_PORTS)."""
CHATTER = re.compile(r"%\d\|")
"""Output of librdkafka for each connection that a killed node refuses: thousands of lines with FAIL
that do not mean a failed test."""
DURATION = re.compile(r"(\d+\.\d+)s (call|setup|teardown) +(\S.*)")
COUNTED = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")
BROKEN = re.compile(r"(FAILED|ERROR) tests/")
CLOSING = re.compile(r"\d+ [a-z]+.* in \d+\.\d+s")
REPEATED_LINES = 150
"""Last lines of a failed group's report that are printed again at the end."""
SLOWEST = 10
NOTHING_SELECTED = 5


@dataclass(frozen=True, slots=True)
class Job:
    """One run of pytest: a group or one of its shards, and the expression that selects tests."""

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
    """The parsed output of one run of pytest. `report` begins at the first section heading."""

    job: Job
    code: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    report: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Parse one line of pytest's output."""
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
    """Return the names of the folders that have tests."""
    files = (ROOT / "tests").glob("*/**/test_*.py")
    return sorted({path.relative_to(ROOT / "tests").parts[0] for path in files})


def groups_with(mark: str) -> list[str]:
    """Return the groups in which some test has the mark."""
    return [group for group, marks in _marks(ROOT).items() if mark in marks]


@cache
def _marks(root: Path) -> dict[str, set[str]]:
    """Return the marks that the test files of each group use."""
    found: dict[str, set[str]] = {group: set() for group in all_groups()}
    for group, marks in found.items():
        for path in (root / "tests" / group).rglob("test_*.py"):
            marks.update(re.findall(r"\bmark\.(\w+)", path.read_text(encoding="utf-8")))
    return found


def selection(suite: str) -> dict[str, str]:
    """Return the expression that selects the tests of each group. `core` and `rest` are disjoint;
    together they are all tests that are not `soak`."""
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
    """Return the computing and the waiting jobs, in starting order. A group without an entry counts
    as waiting."""
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
    """Runner of jobs in lanes; it prints their output."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_ended = False

    def run(self, computing: Sequence[Job], waiting: Sequence[Job]) -> list[Result]:
        """Run all these jobs. Returns: the results of these."""
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
            # SIGTERM or Ctrl-C: the fixtures of the tests stop the nodes that they have started.
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
    """Return the groups and expressions that selected no test in any shard: the mark is unused
    there."""
    ran: dict[tuple[str, str], bool] = {}
    for result in results:
        key = (result.job.group, result.job.marks)
        ran[key] = ran.get(key, False) or result.code != NOTHING_SELECTED
    return {key for key, any_test in ran.items() if not any_test}


def closing_line(results: Sequence[Result]) -> str:
    """Return the sums over all groups. Errors count as failures. So does a shard that failed
    without a failed test, and a group that selected no test."""
    counts: Counter[str] = sum((result.counts for result in results), Counter())
    counts["failed"] += sum(1 for r in results if r.failed and not r.counts["failed"])
    counts["failed"] += len(empty(results))
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))


def tell(results: Sequence[Result]) -> None:
    """Print the reports of failed groups, the slowest tests, and each group's time and skips."""
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
