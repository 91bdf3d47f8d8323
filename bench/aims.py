"""One page with every aim, met or missed: the end of `make bench`.

    python -m bench.aims FOLDER [--markdown FILE]

FOLDER contains the `--json` files of the benchmarks, named after them: `single_node.json`,
`tier.json`. A row has the median of the rounds, the smallest and the largest figure, and whether
the median meets the aim. Aims that were not measured are listed, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from bench.report import put_between, shown
from testkit.kafka.jars import ORACLE
from testkit.processes.ending import end_on_sigterm

MARK: Final = "aims"
_COUNTS: Final = ("1 producer", "10 producers")
_ONE, _MANY = "1 partition", "200 partitions at once"
OURS, KAFKA, WITHOUT_HINTS = "Kraftbox", f"Kafka {ORACLE}", "Kraftbox without KIP-951"

Figure: TypeAlias = Callable[[Any], Sequence[float]]
"""Returns the figures of the rounds from a benchmark's file. KeyError if the row is missing."""


class Aim(NamedTuple):
    """An aim: the least or the most that a figure may be."""

    benchmark: str
    name: str
    figure: Figure
    least: float | None = None
    most: float | None = None

    @property
    def text(self) -> str:
        if self.least is not None:
            return f"at least {shown(self.least)}"
        assert self.most is not None
        return f"at most {shown(self.most)}"

    def is_met(self, value: float) -> bool:
        if self.least is not None:
            return value >= self.least
        return self.most is not None and value <= self.most


class Line(NamedTuple):
    """One row of the page; without figures the aim was not measured."""

    benchmark: str
    name: str
    aim: str
    figures: Sequence[float]
    met: bool | None

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]


# --- places of the figures ----------------------------------------------------------------------


def to_kafka(row: str) -> Figure:
    """Return Kraftbox's figure over Kafka's of the same round, for a benchmark that has both."""

    def figure(found: Any) -> list[float]:
        values = found[row]
        pairs = zip(values["kraftbox"], values["kafka"], strict=False)
        return [ours / theirs for ours, theirs in pairs if theirs]

    return figure


def of_moves(key: str, other: str = "") -> Figure:
    """Return the figure of planned leadership moves, or its ratio to that of column `other`."""

    def figure(found: Any) -> list[float]:
        by: dict[str, list[float]] = {}
        for one in found:
            if one["case"] == "moves":
                by.setdefault(one["name"], []).append(one[key])
        if not other:
            return by[OURS]
        return [ours / theirs for ours, theirs in zip(by[OURS], by[other], strict=False)]

    return figure


def of_start(key: str) -> Figure:
    """Return the start times of six nodes, or the sum over the nodes."""

    def figure(found: Any) -> list[float]:
        values = found["kraftbox"][key]
        return values if isinstance(values, list) else [sum(values.values())]

    return figure


def of_new_replicas(size: str, at: int) -> Figure:
    """Return the ratio on to off of Kraftbox's seconds (`at` 0) or bytes (1)."""

    def figure(found: Any) -> list[float]:
        rows = [one for one in found if (one["side"], one["size"]) == ("kraftbox", size)]
        if not rows:
            raise KeyError(size)
        return [one["on"][at] / one["off"][at] for one in rows]

    return figure


def _loads() -> Iterable[Aim]:
    """Yield the aims of one node compared with one Kafka node."""
    for size in ("1 KB", "100 B"):
        loads = [f"{count}, acks={acks}" for acks in ("all", "1") for count in _COUNTS]
        for load in (*loads, "librdkafka, acks=all", "consume cold"):
            throughput, cpu = (f"{load}, {size}: {unit}" for unit in ("MB/s", "broker CPU s/GB"))
            yield Aim("single_node", throughput, to_kafka(throughput), least=1.2)
            if load == "consume cold":
                yield Aim("single_node", cpu, to_kafka(cpu), most=1.0)
            elif size == "1 KB":
                yield Aim("single_node", cpu, to_kafka(cpu), most=0.5)
        half = f"half of the maximum, {size}: broker CPU s/GB"
        yield Aim("single_node", half, to_kafka(half), most=0.7)
    for size in ("1 KB", "100 B"):
        for count in _COUNTS:
            row = f"{count}, {size}"
            yield Aim("replicated", f"{row}: MB/s", to_kafka(f"{row}: MB/s"), least=2.0)
            cpu = f"{row}: broker CPU s/GB"
            yield Aim("replicated", cpu, to_kafka(cpu), most=0.5)


AIMS: Final = (
    *_loads(),
    Aim("cluster_start", "six nodes ready: s", of_start("ready_s"), most=0.5),
    Aim("cluster_start", "six nodes: MiB", of_start("pss_mb"), most=100),
    Aim("cluster_start", "six nodes idle: % of a core", of_start("idle_core_percent"), most=1.5),
    Aim("leader_moves", "p99.9, to Kafka's", of_moves("p999_ms", KAFKA), most=0.5),
    Aim(
        "leader_moves",
        "p99.9, to ours without hints",
        of_moves("p999_ms", WITHOUT_HINTS),
        most=0.12,
    ),
    Aim("leader_moves", "longest send of a planned move: ms", of_moves("max_ms"), most=20),
    Aim("new_replica", "200 partitions: time, on to off", of_new_replicas(_MANY, 0), most=0.15),
    Aim("new_replica", "200 partitions: bytes, on to off", of_new_replicas(_MANY, 1), most=0.15),
    Aim("new_replica", "1 partition: time, on to off", of_new_replicas(_ONE, 0), most=0.15),
    Aim("new_replica", "1 partition: bytes, on to off", of_new_replicas(_ONE, 1), most=0.15),
)


# --- the page -----------------------------------------------------------------------------------


def judged(aim: Aim, found: Any) -> Line:
    """Compare an aim with its benchmark's file; `found` is None without a file."""
    try:
        figures = [] if found is None else list(aim.figure(found))
    except KeyError:
        figures = []
    met = aim.is_met(statistics.median(figures)) if figures else None
    return Line(aim.benchmark, aim.name, aim.text, figures, met)


def lines_of(found: dict[str, Any]) -> list[Line]:
    """Return all rows; `found` has the files by benchmark.

    The rows of tiered storage have own aims.
    """
    lines = [judged(aim, found.get(aim.benchmark)) for aim in AIMS]
    rows = [row for row in found.get("tier", ()) if row["aim"]]
    return lines + [
        Line("tier", row["name"], row["aim"], [row["value"]], row["met"]) for row in rows
    ]


def page(lines: Sequence[Line]) -> str:
    """Return the page as Markdown, with the totals at its end."""
    told = ["| benchmark | | aim | median | rounds | |", "|---|---|---|---|---|---|"]
    for one in lines:
        median = spread = ""
        if one.figures:
            median = shown(statistics.median(one.figures))
            spread = f"{shown(min(one.figures))}-{shown(max(one.figures))}"
        told.append(
            f"| {one.benchmark} | {one.name} | {one.aim} | {median} | {spread} | {one.word} |"
        )
    met = sum(one.met is True for one in lines)
    missed = sum(one.met is False for one in lines)
    left = len(lines) - met - missed
    told += ["", f"{met} aims are met, {missed} are missed, {left} were not measured."]
    return "\n".join(told)


def read(folder: Path) -> dict[str, Any]:
    """Return the files of the benchmarks by name."""
    return {one.stem: json.loads(one.read_text("utf-8")) for one in sorted(folder.glob("*.json"))}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--markdown", type=Path, help="write the page between the marks of this file"
    )
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"unknown folder: {options.folder}")
    text = page(lines_of(read(options.folder)))
    print(text)
    if options.markdown:
        put_between(options.markdown, MARK, text)


if __name__ == "__main__":
    end_on_sigterm()
    main()
