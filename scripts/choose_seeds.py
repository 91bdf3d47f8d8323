"""Choose the seeds that CI plays: `python -m scripts.choose_seeds LEDGER > tests/sim/ci_seeds.txt`.

Of each fault the seed that costs least, and of each shape of cluster the same share of its seeds,
again the cheapest: the cost of a run goes with the messages that are delivered in it. The ledger is
that of `make soak-seeds`, by this code.
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
"""A run in which less was acknowledged has asked little."""
PER_LINE = 15

Outcome = Mapping[str, Any]


def choose(outcomes: Iterable[Outcome], wanted: int = CHOSEN) -> list[int]:
    """Seeds in order, `wanted` of them; all there are if there are fewer."""
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
    # Without what chooses faults or a tier: the seed alone is what CI plays.
    plain = [one for replay, one in ledger.runs.items() if replay == f"--seed {one['seed']}"]
    seeds = choose(plain)
    print(f"# {len(seeds)} of {len(plain)} seeds: scripts/choose_seeds.py.")
    for at in range(0, len(seeds), PER_LINE):
        print(*seeds[at : at + PER_LINE])


if __name__ == "__main__":
    main()
