"""Pictures of benchmarks, drawn from the figures that they keep.

    python -m bench.pictures leader-moves FIGURES.json OUT.png

Needs matplotlib, which nothing else here does (`pip install .[bench]`). A run on a machine without
it keeps its figures all the same, and anybody can draw them again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

COLOURS: Final = ("#1b7f79", "#b0b0b0", "#c8553d")
PERCENTILES: Final = {
    "p50_ms": "p50",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "p999_ms": "p99.9",
    "max_ms": "longest",
}


class Bars(NamedTuple):
    """One of those compared: the median of its rounds for each percentile, and the spread."""

    name: str
    medians: list[float]
    least: list[float]
    most: list[float]


def bars_of(rows: Sequence[Mapping[str, Any]]) -> list[Bars]:
    """What `bench.leader_moves` kept, by name, ours first."""
    names = sorted({str(row["name"]) for row in rows}, key=lambda n: (n.startswith("Kafka"), n))
    found = []
    for name in names:
        columns = [[float(row[key]) for row in rows if row["name"] == name] for key in PERCENTILES]
        found.append(
            Bars(
                name,
                [statistics.median(column) for column in columns],
                [min(column) for column in columns],
                [max(column) for column in columns],
            )
        )
    return found


def draw_leader_moves(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """A group of bars for each percentile, on a scale of powers of ten."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = bars_of(rows)
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    width = 0.8 / len(bars)
    for number, (one, colour) in enumerate(zip(bars, COLOURS, strict=False)):
        places = [group + number * width for group in range(len(PERCENTILES))]
        spread = [
            [median - least for median, least in zip(one.medians, one.least, strict=True)],
            [most - median for median, most in zip(one.medians, one.most, strict=True)],
        ]
        drawn = axes.bar(
            places, one.medians, width, yerr=spread, capsize=3, label=one.name, color=colour
        )
        axes.bar_label(drawn, fmt="%.0f", fontsize=8, padding=2)
    axes.set_yscale("log")
    axes.set_ylabel("time of a send, ms")
    middle = width * (len(bars) - 1) / 2
    axes.set_xticks([group + middle for group in range(len(PERCENTILES))])
    axes.set_xticklabels(PERCENTILES.values())
    axes.set_title("All leaderships of 100 partitions move, several times", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    # Without a date in it, the same figures make the same file.
    figure.savefig(out, metadata={"Software": None})


PICTURES: Final = {"leader-moves": draw_leader_moves}


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's description."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("picture", choices=PICTURES)
    parser.add_argument("figures", type=Path, help="JSON that the benchmark wrote")
    parser.add_argument("out", type=Path, help="PNG to write")
    options = parser.parse_args(arguments)
    PICTURES[options.picture](json.loads(options.figures.read_text()), options.out)


if __name__ == "__main__":
    main()
