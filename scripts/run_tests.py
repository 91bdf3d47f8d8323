"""Run the test groups in order, cheapest first, and say at the end what was skipped and why."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("unit", "property", "golden", "scenarios", "sim", "badinput")
LAST = ("interop", "e2e", "compose")
PARTS = {"unit": 2, "property": 2, "sim": 2}
"""Groups that run in several processes: those that compute all the time and measure nothing."""
IN_ORDER = ["-p", "no:randomly"]
"""For the groups of LAST: their tests share clusters and containers, and what takes minutes of real
processes must fail the same way twice. The others run in a random order, whose seed is printed."""
CHATTER = re.compile(r"%\d\|")
"""librdkafka tells on standard error of each connection that a killed node refuses: thousands of
lines that say FAIL and mean nothing."""
REPEATED_LINES = 150
"""So much of a failed group's report is printed again at the end, where it is looked for."""


def groups() -> list[str]:
    """Folders of tests, quick ones first; one that nobody ordered comes before the slow ones."""
    found = {path.parent.relative_to(ROOT / "tests").parts[0] for path in test_files()}
    others = sorted(found - set(FIRST) - set(LAST))
    return [name for name in (*FIRST, *others, *LAST) if name in found]


def test_files() -> list[Path]:
    return list((ROOT / "tests").glob("*/**/test_*.py"))


@dataclass(frozen=True, slots=True)
class Result:
    group: str
    code: int
    skipped: list[str]
    report: list[str]
    seconds: float


def run(group: str, marker: str) -> Result:
    """Run one group, passing its output on."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", marker, f"tests/{group}"]
    if group in LAST:
        command += [*IN_ORDER, "--durations=12"]
    parts = PARTS.get(group, 1)
    options = [["--shard", f"{part + 1}/{parts}"] for part in range(parts)] if parts > 1 else [[]]
    processes = [
        subprocess.Popen(
            [*command, *more],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for more in options
    ]
    lock = threading.Lock()
    skipped: list[str] = []
    reports: list[list[str]] = [[] for _ in processes]

    def follow(process: subprocess.Popen[str], report: list[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if CHATTER.match(line):
                continue
            with lock:
                sys.stdout.write(line)
                sys.stdout.flush()
                if line.startswith("SKIPPED"):
                    skipped.append(line.strip())
            if report or line.startswith("===="):
                report.append(line)

    readers = [
        threading.Thread(target=follow, args=pair) for pair in zip(processes, reports, strict=True)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    nothing_selected = 5
    codes = [process.wait() for process in processes]
    failed = [code not in (0, nothing_selected) for code in codes]
    code = next((code for code, bad in zip(codes, failed, strict=True) if bad), 0)
    lines = [line for report, bad in zip(reports, failed, strict=True) if bad for line in report]
    return Result(group, code, skipped, lines, time.monotonic() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soak", action="store_true", help="run the long tests instead")
    parser.add_argument("groups", nargs="*")
    options = parser.parse_args()
    marker = "soak" if options.soak else "not soak"
    results = []
    for group in options.groups or groups():
        print(f"== {group}", flush=True)
        results.append(run(group, marker))
    for result in results:
        if result.code:
            print(f"== what failed in {result.group}")
            sys.stdout.writelines(result.report[-REPEATED_LINES:])
    print("== summary")
    for result in results:
        verdict = "ok    " if result.code == 0 else "FAILED"
        print(f"{verdict} {result.group:10} {result.seconds:7.1f} s")
        for line in result.skipped:
            print(f"         {line}")
    return 1 if any(result.code for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
