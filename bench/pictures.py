"""Pictures of benchmarks, drawn from their saved figures.

    python -m bench.pictures leader-moves FIGURES.json OUT.png

Needs matplotlib, which nothing else here does (`pip install .[bench]`). A run on a machine without
it saves its figures all the same, and they can be drawn elsewhere.
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from testkit.kafka.jars import ORACLE
from testkit.processes.ending import end_on_sigterm

COLOURS: Final = {
    "Kraftbox": "#1b7f79",
    "Kraftbox without KIP-951": "#b0b0b0",
    f"Kafka {ORACLE}": "#c8553d",
}
TITLES: Final = {
    "moves": "All leaderships of 100 partitions move, several times",
    "consumer": "The same, with a consumer beside the producer",
    "librdkafka": "The same, librdkafka as the producer",
    "killed": "A broker is killed and started again",
    "rolled": "All brokers are stopped and started, one after the other",
}
"""A panel for each case that was measured."""
BINS: Final = tuple(0.1 * 10 ** (step / 10) for step in range(51))
"""Upper bounds in milliseconds: ten per power of ten, from 0.1 ms to 10 s."""


class Histogram(NamedTuple):
    """One of the compared clusters: the number of sends of all its rounds per bin of `BINS`."""

    name: str
    counts: list[int]


def histograms_of(rows: Sequence[Mapping[str, Any]], case: str = "moves") -> list[Histogram]:
    """Return the figures of a case of `bench.leader_moves` by name, Kraftbox first."""
    names = {str(row["name"]) for row in rows if row["case"] == case}
    found = []
    for name in sorted(names, key=lambda n: (n.startswith("Kafka"), n)):
        counts = [0] * len(BINS)
        for row in rows:
            if (row["case"], row["name"]) == (case, name):
                for tenths, count in row["sends"]["counts"].items():
                    bin_ = bisect_left(BINS, int(tenths) / 10 - 0.05)
                    counts[min(bin_, len(BINS) - 1)] += count
        found.append(Histogram(name, counts))
    return found


def draw_leader_moves(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Draw the number of sends over their duration for each case, both on logarithmic scales."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = [case for case in TITLES if any(row["case"] == case for row in rows)]
    size = (8, 1 + 3 * len(cases))
    figure, panels = pyplot.subplots(len(cases), figsize=size, dpi=120, squeeze=False)
    for case, (axes,) in zip(cases, panels, strict=True):
        for one in histograms_of(rows, case):
            edges = [BINS[0] / 10 ** (1 / 10), *BINS]
            colour = COLOURS[one.name]
            axes.stairs(one.counts, edges, label=one.name, color=colour, linewidth=1.6)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        axes.set_ylabel("sends")
        axes.set_title(TITLES[case], fontsize=10)
        axes.legend(fontsize=8)
    panels[-1][0].set_xlabel("time of a send, ms")
    figure.tight_layout()
    # Without a date, the same figures make the same file.
    figure.savefig(out, metadata={"Software": None})


PICTURES: Final = {"leader-moves": draw_leader_moves}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("picture", choices=PICTURES)
    parser.add_argument("figures", type=Path, help="JSON file of the benchmark")
    parser.add_argument("out", type=Path, help="PNG file to write")
    options = parser.parse_args(arguments)
    PICTURES[options.picture](json.loads(options.figures.read_text()), options.out)


if __name__ == "__main__":
    end_on_sigterm()
    main()
