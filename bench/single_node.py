"""Comparison of one node with one Apache Kafka node: `make bench`.

    python -m bench.single_node [--cases CASES] [--minutes N | --rounds N] [--quick]
                                [--markdown FILE] [--json FILE] [--profile]

Both serve the same commands in turn, so that a shared machine's drift affects both. The result is
the ratio, the median of several rounds. The JVM is warmed with 1 GB before anything is measured.
Nothing here passes or fails. Progress goes to standard error, the tables to standard output;
`--markdown` writes them between the marks in that file.

Cases, by their names for `--cases`:

    rest     start, memory and CPU while idle
    produce  one producer: kafka-producer-perf-test with acks 1 and all, librdkafka; 1 KB and 100 B
    ten      ten producers in one JVM, the same
    cold     reading a topic from its start with a cold page cache
    blast    a load without client limits, in 64 KB batches and in one-record requests
    half     one producer at half of what both nodes reach, with a consumer at the tail
    walk     our node with and without `kraftbox.produce.validate.records=true`

`--profile` reports for each load where our node's CPU goes (`bench.profiled`); its figures must not
be quoted.

`--minutes` runs as many rounds (at most three) as fit into the time, with shorter steps, and skips
`walk` unless it is named. Each topic is deleted directly after its load, so that there are only
some gigabytes of data at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.clients import (
    Figures,
    Java,
    blast,
    consume,
    create_topic,
    delete_topics,
    produce,
    produce_librdkafka,
)
from bench.nodes import (
    Kafka,
    Kraftbox,
    Node,
    cpu_seconds,
    keep_bytecode,
    make_cold,
    resident_mb,
)
from bench.place import bench_place
from bench.profiled import Profiles, watched
from bench.report import put_between, shown
from testkit.kafka.jars import ORACLE
from testkit.processes.ending import end_on_sigterm

KRAFTBOX, KAFKA, VALIDATING = "kraftbox", "kafka", "validating"
SIZES = ((1024, "1 KB"), (100, "100 B"))
# Blasts: their names and the arguments of `bench.blast`.
BLASTS = (
    ("64 KB batches, 4 connections", ("--connections", "4", "--partitions", "4")),
    ("64 KB batches, 1 connection", ("--connections", "1")),
    ("one record of 100 B, 1 connection", ("--batch-bytes", "170", "--connections", "1")),
    (
        "one record of 100 B, 10 connections",
        ("--batch-bytes", "170", "--connections", "10", "--partitions", "10"),
    ),
)
ONE_RECORD = "one record"
WALK = "walk: "
IN_FLIGHT = ("--in-flight", "5")
UNITS = {
    "mb_per_s": "MB/s",
    "tail_mb_per_s": "read at the tail, MB/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "tail_p99_ms": "written to read, p99 ms",
    "cpu_s_per_gb": "broker CPU s/GB",
    "requests_per_s": "requests/s",
    "cpu_us_per_request": "broker CPU µs/request",
    "s": "s",
    "mb": "MiB",
    "percent": "% of a core",
}
MARK = "figures"
CASES = ("rest", "produce", "ten", "cold", "blast", "half", "walk")


@dataclass(frozen=True)
class Scale:
    """The amount of work."""

    cases: tuple[str, ...] = CASES
    rounds: int = 3
    minutes: float = 0
    starts: int = 5
    idle_s: float = 15
    warm_records: int = 1_000_000
    records: int = 600_000
    # With less, the broker's CPU would be indistinguishable from that of joining a group or a tick.
    cold_bytes: int = 300_000_000
    warmup_s: int = 4
    seconds: int = 10
    rate_seconds: int = 20
    blast_s: float = 4


QUICK = Scale(
    rounds=1,
    starts=1,
    idle_s=3,
    warm_records=50_000,
    records=50_000,
    cold_bytes=0,
    warmup_s=1,
    seconds=2,
    rate_seconds=3,
    blast_s=1,
)
TIMED = Scale(
    cases=tuple(case for case in CASES if case != "walk"),
    starts=1,
    idle_s=5,
    warm_records=700_000,
    records=300_000,
    warmup_s=2,
    seconds=4,
    rate_seconds=8,
    blast_s=3,
)


class Results:
    """Figures by row and node; each repetition adds one value."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, list[float]]] = {}

    def add(self, row: str, node: str, figures: Figures, *units: str) -> None:
        """Record the figures of these units, or all of them."""
        for unit in units or figures:
            values = self.rows.setdefault((row, unit), {}).setdefault(node, [])
            values.append(round(figures[unit], 3))

    def median(self, row: str, unit: str, node: str) -> float | None:
        """Return the median of a row for one node."""
        values = self.rows.get((row, unit), {}).get(node)
        return statistics.median(values) if values else None


class TimeIsUp(Exception):
    """The given minutes have passed."""


class Run:
    """One comparison from the first start to the last stop."""

    def __init__(self, place: Path, scale: Scale, *, profile: bool = False) -> None:
        self.place = place
        self.scale = scale
        self.profiles = Profiles(place) if profile else None
        self.java = Java(place)
        self.results = Results()
        self.began = time.monotonic()

    def compare(self) -> None:
        """Run the cases of the scale and record their figures."""
        keep_bytecode(self.place)
        if set(self.scale.cases) - {"walk"}:
            nodes: list[Node] = [Kraftbox(self.place / KRAFTBOX), Kafka(self.place / KAFKA)]
            try:
                self._both(nodes)
            except TimeIsUp:
                say("time is up: the remaining cases were not measured")
            finally:
                for node in nodes:
                    node.stop()
        if "walk" in self.scale.cases:
            self._cost_of_walking()

    def _both(self, nodes: list[Node]) -> None:
        """Run the cases of both nodes."""
        if "rest" in self.scale.cases:
            self._at_rest(nodes)
        else:
            for node in nodes:
                node.start()
        for node in nodes:
            say(f"warming {node.name}")
            produce(node, "warm", self.scale.warm_records, 1024, "all")
            delete_topics(node, "warm")
        for number in range(self.scale.rounds):
            began = time.monotonic()
            self._round(nodes, number)
            for node in nodes:
                self._note("after all of it, resident", node, {"mb": resident_mb(node.pid)})
            took_s = time.monotonic() - began
            say(f"round {number + 1} took {took_s:.0f} s")
            if self._no_time_for(took_s):
                break

    def _round(self, nodes: list[Node], number: int) -> None:
        for size_bytes, text in SIZES:
            for node in nodes:
                self._clients(node, number, size_bytes, text)
        if "blast" in self.scale.cases:
            self._blasts(nodes, number)
        if "half" in self.scale.cases:
            self._half_rate(nodes)

    def _no_time_for(self, seconds: float) -> bool:
        passed_s = time.monotonic() - self.began
        return 0 < self.scale.minutes * 60 < passed_s + seconds

    def _note(self, row: str, node: Node | str, figures: Figures, *units: str) -> None:
        self.results.add(row, node if isinstance(node, str) else node.name, figures, *units)
        if self._no_time_for(0.0):
            raise TimeIsUp

    # --- the rows ---------------------------------------------------------------------------------

    def _at_rest(self, nodes: list[Node]) -> None:
        for node in nodes:
            # The first start compiles the modules, including Python's own, into an empty cache. An
            # installed package has them compiled.
            node.start()
            node.stop()
        for number in range(self.scale.starts):
            for node in nodes:
                self._note("start to ready", node, {"s": node.start()})
                if number < self.scale.starts - 1:
                    node.stop()
        time.sleep(min(3.0, self.scale.idle_s))
        for node in nodes:
            self._note("idle, resident", node, {"mb": resident_mb(node.pid)})
        before = [cpu_seconds(node.pid) for node in nodes]
        time.sleep(self.scale.idle_s)
        for node, then in zip(nodes, before, strict=True):
            used = cpu_seconds(node.pid) - then
            self._note("idle", node, {"percent": 100 * used / self.scale.idle_s})

    def _clients(self, node: Node, number: int, size_bytes: int, text: str) -> None:
        cases = self.scale.cases
        say(f"{node.name}: records of {text}, round {number + 1}")
        # Small records cost the clients, not the broker: fewer bytes, about the same time.
        records = self.scale.records if size_bytes == 1024 else 2 * self.scale.records
        for acks in ("all", "1"):
            if "produce" in cases:
                self._one_producer(node, f"one-{acks}", records, size_bytes, acks)
            if "ten" in cases and self.java.has_load:
                row = f"10 producers, acks={acks}, {text}"
                self._ten_producers(node, row, size_bytes, acks)
        if "produce" in cases:
            row = f"librdkafka, acks=all, {text}"
            with watched(self.profiles, row, node):
                made = produce_librdkafka(node, "librdkafka", records, size_bytes)
            self._note(row, node, made)
            delete_topics(node, "librdkafka")
        if "cold" in cases:
            enough = max(records, self.scale.cold_bytes // size_bytes)
            produce(node, "cold", enough, size_bytes, "1")
            make_cold(node, "cold")
            row = f"consume cold, {text}"
            with watched(self.profiles, row, node):
                made = consume(node, "cold", enough, size_bytes)
            self._note(row, node, made)
            delete_topics(node, "cold")

    def _one_producer(
        self, node: Node, topic: str, records: int, size_bytes: int, acks: str
    ) -> None:
        row = f"1 producer, acks={acks}, {dict(SIZES)[size_bytes]}"
        with watched(self.profiles, row, node):
            made = produce(node, topic, records, size_bytes, acks)
        self._note(row, node, made)
        delete_topics(node, topic)

    def _ten_producers(self, node: Node, row: str, size_bytes: int, acks: str) -> None:
        with watched(self.profiles, row, node):
            made = self.java.load(
                node,
                "ten",
                producers=10,
                size_bytes=size_bytes,
                acks=acks,
                warmup_s=self.scale.warmup_s,
                seconds=self.scale.seconds,
            )
        self._note(row, node, made, "mb_per_s", "p99_ms", "cpu_s_per_gb")
        delete_topics(node, "ten")

    def _blasts(self, nodes: list[Node], number: int) -> None:
        say(f"blasts, round {number + 1}")
        for name, arguments in BLASTS:
            for node in nodes:
                self._blast(node, node.name, name, arguments)

    def _blast(self, node: Node, column: str, row: str, arguments: tuple[str, ...]) -> None:
        create_topic(node, "blast", 10)
        name = row.removeprefix(WALK)
        seconds = str(self.scale.blast_s)
        with watched(self.profiles, f"blast, {name}", node):
            made = blast(node, "blast", *arguments, *IN_FLIGHT, "--seconds", seconds)
        units = ("mb_per_s", "cpu_s_per_gb")
        if name.startswith(ONE_RECORD):
            units = ("requests_per_s", "cpu_us_per_request")
        self._note(f"{WALK if row != name else ''}blast, {name}", column, made, *units)
        delete_topics(node, "blast")

    def _half_rate(self, nodes: list[Node]) -> None:
        if not self.java.has_load:
            return
        for size_bytes, text in SIZES:
            rate = self._half_of_the_least(nodes, size_bytes, text)
            for node in nodes:
                say(f"{node.name}: {rate} records of {text} a second, with a consumer")
                row = f"half of the maximum, {text}"
                with watched(self.profiles, row, node):
                    made = self.java.load(
                        node,
                        "half",
                        producers=1,
                        size_bytes=size_bytes,
                        acks="all",
                        rate=rate,
                        warmup_s=min(10, self.scale.rate_seconds),
                        seconds=self.scale.rate_seconds,
                        tail=True,
                    )
                units = ("p50_ms", "p99_ms", "tail_p99_ms", "cpu_s_per_gb")
                self._note(row, node, made, *units)
                delete_topics(node, "half")

    def _half_of_the_least(self, nodes: list[Node], size_bytes: int, text: str) -> int:
        """Return half of the slower node's records per second."""
        row = f"1 producer, acks=all, {text}"
        most = [self.results.median(row, "mb_per_s", node.name) for node in nodes]
        for at, node in enumerate(nodes):
            if most[at] is None:
                made = produce(node, "rate", self.scale.records, size_bytes, "all")
                delete_topics(node, "rate")
                most[at] = made["mb_per_s"]
        return int(min(value for value in most if value) * 1e6 / size_bytes / 2)

    def _cost_of_walking(self) -> None:
        """Measure the cost of checking every record: the same loads on two fresh nodes of ours."""
        walking = {"kraftbox.produce.validate.records": "true"}
        nodes = {
            KRAFTBOX: Kraftbox(self.place / "plain"),
            VALIDATING: Kraftbox(self.place / "walking", walking),
        }
        try:
            for node in nodes.values():
                node.start()
            for number in range(self.scale.rounds):
                for column, node in nodes.items():
                    say(f"{column}: cost of walking, round {number + 1}")
                    for size_bytes, text in SIZES:
                        records = self.scale.records // 3
                        made = produce(node, "walk", records, size_bytes, "all")
                        self._note(f"{WALK}1 producer, acks=all, {text}", column, made)
                        delete_topics(node, "walk")
                    for name, arguments in (BLASTS[0], BLASTS[2]):
                        self._blast(node, column, f"{WALK}{name}", arguments)
        finally:
            for node in nodes.values():
                node.stop()


# --- the report -----------------------------------------------------------------------------------


def table(results: Results, ours: str, theirs: str, heads: tuple[str, str], walk: bool) -> str:
    """Return the rows of two columns and their ratio as Markdown."""
    lines = [f"| | {heads[0]} | {heads[1]} | ratio |", "|---|---|---|---|"]
    for row, unit in results.rows:
        if row.startswith(WALK) is not walk:
            continue
        mine = results.median(row, unit, ours)
        other = results.median(row, unit, theirs)
        if mine is None or other is None:
            continue
        ratio = f"{mine / other:.2f}" if other else "-"
        name = row.removeprefix(WALK)
        lines.append(f"| {name}: {UNITS[unit]} | {shown(mine)} | {shown(other)} | {ratio} |")
    return "\n".join(lines)


def report(results: Results) -> str:
    """Return both tables, as far as there are figures."""
    parts = []
    first = table(results, KRAFTBOX, KAFKA, ("Kraftbox", f"Kafka {ORACLE}"), walk=False)
    second = table(results, VALIDATING, KRAFTBOX, ("every record checked", "default"), walk=True)
    if first.count("\n") > 1:
        parts.append(first)
    if second.count("\n") > 1:
        parts.append(f"With `kraftbox.produce.validate.records=true`:\n\n{second}")
    return "\n\n".join(parts)


def say(text: str) -> None:
    """Print progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def chosen_scale(options: argparse.Namespace) -> Scale:
    """Return the scale of the command line. Raises SystemExit for a case that does not exist."""
    scale = QUICK if options.quick else TIMED if options.minutes else Scale()
    if options.cases:
        unknown = set(options.cases.split(",")) - set(CASES)
        if unknown:
            raise SystemExit(
                f"unknown case: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}"
            )
        scale = replace(scale, cases=tuple(options.cases.split(",")))
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    return replace(scale, minutes=options.minutes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run every step once, without figures")
    parser.add_argument("--cases", help="comma-separated names; default: all")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--profile", action="store_true", help="profile our node's CPU time")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--markdown", type=Path, help="write the tables between the marks of this file"
    )
    options = parser.parse_args(arguments)
    scale = chosen_scale(options)
    began = time.monotonic()
    with bench_place() as place:
        run = Run(place, scale, profile=options.profile)
        try:
            run.compare()
        finally:
            if options.json:
                raw = {f"{row}: {UNITS[unit]}": by for (row, unit), by in run.results.rows.items()}
                options.json.write_text(json.dumps(raw, indent=1))
            text = report(run.results)
            print(text)
            if run.profiles is not None:
                print(f"\n{run.profiles.report()}")
            minutes, seconds = divmod(round(time.monotonic() - began), 60)
            say(f"{minutes} min {seconds} s in all")
    if options.markdown and text:
        put_between(options.markdown, MARK, text)


if __name__ == "__main__":
    end_on_sigterm()
    main()
