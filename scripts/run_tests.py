"""Run the test groups in order, cheapest first, and say at the end what was skipped and why."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("unit", "property", "golden", "scenarios", "sim", "badinput")
LAST = ("interop", "e2e")


def groups() -> list[str]:
    """Folders of tests, quick ones first; one that nobody ordered comes before the slow ones."""
    found = {path.parent.relative_to(ROOT / "tests").parts[0] for path in test_files()}
    others = sorted(found - set(FIRST) - set(LAST))
    return [name for name in (*FIRST, *others, *LAST) if name in found]


def test_files() -> list[Path]:
    return list((ROOT / "tests").glob("*/**/test_*.py"))


def run(group: str, marker: str) -> tuple[int, list[str], float]:
    """Exit code, lines about skipped tests, seconds."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", marker, f"tests/{group}"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    skipped = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        if line.startswith("SKIPPED"):
            skipped.append(line.strip())
    code = process.wait()
    nothing_selected = 5
    return (0 if code == nothing_selected else code), skipped, time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soak", action="store_true", help="run the long tests instead")
    parser.add_argument("groups", nargs="*")
    options = parser.parse_args()
    marker = "soak" if options.soak else "not soak"
    results = []
    for group in options.groups or groups():
        print(f"== {group}", flush=True)
        results.append((group, *run(group, marker)))
    print("== summary")
    for group, code, skipped, seconds in results:
        print(f"{'ok    ' if code == 0 else 'FAILED'} {group:10} {seconds:7.1f} s")
        for line in skipped:
            print(f"         {line}")
    return 1 if any(code for _, code, _, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
