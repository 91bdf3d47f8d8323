"""Choice of the CI seeds: `python -m scripts.choose_seeds LEDGER > tests/sim/ci_seeds.txt`.

Chosen are the cheapest seed of each fault, and the cheapest seeds of each cluster shape, an equal
share of each. The cost of a run is the number of messages delivered in it. The ledger is written by
`make soak-seeds` and must be of the current code.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simulation.ledger import Ledger, code_id

CHOSEN = 300
ACKED_MIN = 4
"""Fewest acknowledged records of a run worth choosing: a run with fewer tests little."""
PER_LINE = 15

RunOutcome = Mapping[str, Any]


def choose(outcomes: Iterable[RunOutcome], wanted: int = CHOSEN) -> list[int]:
    """Return `wanted` seeds in ascending order, or all if there are fewer."""
    by_shape: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    by_fault: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in outcomes:
        if one["broken"] is None and one["counts"]["acked"] >= ACKED_MIN:
            shape = one["shape"]["controllers"], one["shape"]["brokers"]
            cost = one["counts"]["messages"], one["seed"]
            by_shape[shape].append(cost)
            for fault in one["drawn"]:
                by_fault[fault].append(cost)
    of_faults = {min(costs)[1] for costs in by_fault.values()}
    ranked = [
        (seed not in of_faults, (place + 1) / len(costs), seed)
        for costs in by_shape.values()
        for place, (_, seed) in enumerate(sorted(costs))
    ]
    return sorted(seed for *_, seed in sorted(ranked)[:wanted])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path)
    options = parser.parse_args()
    ledger = Ledger(options.ledger, code_id())
    # Runs with options for faults or tiering are left out: CI plays the seed alone.
    plain = [one for replay, one in ledger.runs.items() if replay == f"--seed {one['seed']}"]
    seeds = choose(plain)
    print(f"# {len(seeds)} of {len(plain)} seeds: scripts/choose_seeds.py.")
    for at in range(0, len(seeds), PER_LINE):
        print(*seeds[at : at + PER_LINE])


if __name__ == "__main__":
    main()
