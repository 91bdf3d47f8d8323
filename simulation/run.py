"""Shell: Simulated worlds from the command line: `python -m simulation.run --seeds 1-1000`.

Prints one line per failed seed, with the data needed to replay it, and a summary. Exit code 1 if a
promise was broken. A seed that failed once belongs into seeds.txt, with the reason; the test runs
it from then on.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from simulation import one_node
from simulation.world import traps

SEEDS_FILE = Path(__file__).with_name("seeds.txt")


def known_seeds() -> list[int]:
    """Return the seeds that failed once: one number per line of the file, followed by the reason.
    Lines that begin with a name belong to another test."""
    lines = SEEDS_FILE.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line[:1].isdigit()]


def run(seed: int, *, disguised: bool = False) -> one_node.Result:
    """Run one world with the traps of `simulation.world.traps`, perhaps as if on another
    machine."""
    with traps.disguised() if disguised else traps.locked():
        result = one_node.run(seed)
    gc.collect()
    return result


def _parse_seeds(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run simulated worlds.")
    parser.add_argument("--seeds", required=True, help="for instance 1-100 or 3,17,20-30")
    parser.add_argument("--minutes", type=float, help="begin no seed after this time")
    parser.add_argument("--digests", action="store_true", help="print the digest of each trace")
    parser.add_argument("--trace", type=Path, help="write the trace of the last seed to this file")
    parser.add_argument("--verbose", action="store_true", help="print a line for each seed")
    parser.add_argument("--disguised", action="store_true", help="as another host at another time")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    failed: list[int] = []
    totals: dict[str, float] = {}
    for seed in _parse_seeds(options.seeds):
        if options.minutes and time.perf_counter() - began > options.minutes * 60:
            break
        trace = None
        try:
            result = run(seed, disguised=options.disguised)
        except one_node.WorldFailed as error:
            print(f"{error}\n", flush=True)
            failed.append(seed)
            trace = error.trace
        else:
            trace = result.trace
            _add(totals, result)
            if options.verbose:
                print(f"seed {seed}: {result.counts} {result.errors}", flush=True)
        if options.digests:
            print(f"{seed} {trace.digest()}", flush=True)
        if options.trace:
            options.trace.write_text("\n".join(trace.lines()) + "\n", encoding="utf-8")
    _summary(totals, failed, time.perf_counter() - began)
    return 1 if failed else 0


def _add(totals: dict[str, float], result: one_node.Result) -> None:
    for name, value in {
        "worlds": 1,
        "virtual_s": result.virtual_s,
        "boots": result.boots,
        "operations": result.operations,
        **result.counts,
    }.items():
        totals[name] = totals.get(name, 0) + value


def _summary(totals: dict[str, float], failed: list[int], real_s: float) -> None:
    virtual_s = totals.get("virtual_s", 0.0)
    facts = ", ".join(
        f"{name} {value:.0f}" for name, value in totals.items() if name != "virtual_s"
    )
    print(f"{facts}", file=sys.stderr)
    print(
        f"{virtual_s:.0f} simulated seconds in {real_s:.0f} s: {virtual_s / real_s:.1f} times real",
        file=sys.stderr,
    )
    if failed:
        print(f"FAILED: {failed}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
