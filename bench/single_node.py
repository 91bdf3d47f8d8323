"""One node beside one Apache Kafka node, in one run: `make bench`.

    python -m bench.single_node [--quick] [--markdown docs/benchmarks.md] [--json FILE]

Both serve the same commands in turn, so that a shared machine's drift hits both; what counts is
the ratio. The JVM is warmed with 1 GB before anything of it is counted. Nothing here passes or
fails. Progress goes to standard error, the table to standard output; `--markdown` puts it between
the marks in that file.

The rows: start, memory, idle CPU; one producer (kafka-producer-perf-test, librdkafka) and ten (one
JVM), acks 1 and all, records of 1 KB and 100 B; reading a topic from its start with a cold page
cache; one producer at half of what both nodes reach, with a consumer at the tail; a load that no
client limits, in 64 KB batches and in one-record requests; and our node again with
`kraftbox.produce.validate.records=true`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.clients import (
    Figures,
    Java,
    blast,
    consume,
    create_topic,
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

KRAFTBOX, KAFKA, VALIDATING = "kraftbox", "kafka", "validating"
SIZES = ((1024, "1 KB"), (100, "100 B"))
# Blasts: what it is called and the arguments of `bench.blast`.
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
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    rounds: int = 3
    starts: int = 5
    idle_s: float = 15
    warm_records: int = 1_000_000
    records: int = 600_000
    seconds: int = 10
    rate_seconds: int = 20
    blast_s: float = 4


QUICK = Scale(
    rounds=1,
    starts=1,
    idle_s=3,
    warm_records=50_000,
    records=50_000,
    seconds=3,
    rate_seconds=3,
    blast_s=1,
)


class Results:
    """Figures by row and node; each repetition adds one value."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, list[float]]] = {}

    def add(self, row: str, node: str, figures: Figures, *units: str) -> None:
        """Note these figures, or all of them."""
        for unit in units or figures:
            values = self.rows.setdefault((row, unit), {}).setdefault(node, [])
            values.append(round(figures[unit], 3))

    def median(self, row: str, unit: str, node: str) -> float | None:
        """What a row says of one node."""
        values = self.rows.get((row, unit), {}).get(node)
        return statistics.median(values) if values else None


class Run:
    """One comparison from the first start to the last stop."""

    def __init__(self, place: Path, scale: Scale) -> None:
        self.place = place
        self.scale = scale
        self.java = Java(place)
        self.results = Results()

    def compare(self) -> None:
        """Everything that both nodes do."""
        keep_bytecode(self.place)
        nodes: list[Node] = [Kraftbox(self.place / KRAFTBOX), Kafka(self.place / KAFKA)]
        try:
            self._at_rest(nodes)
            for node in nodes:
                say(f"warming {node.name}")
                produce(node, "warm", self.scale.warm_records, 1024, "all")
            for number in range(self.scale.rounds):
                for size_bytes, text in SIZES:
                    self._in_turn(nodes, lambda node: self._clients(node, number, size_bytes, text))  # noqa: B023
                self._blasts(nodes, number)
            self._half_rate(nodes)
            for node in nodes:
                self._note("after all of it, resident", node, {"mb": resident_mb(node.pid)})
        finally:
            for node in nodes:
                node.stop()
        self._cost_of_walking()

    def _note(self, row: str, node: Node | str, figures: Figures, *units: str) -> None:
        self.results.add(row, node if isinstance(node, str) else node.name, figures, *units)

    def _in_turn(self, nodes: list[Node], step: Callable[[Node], None]) -> None:
        for node in nodes:
            step(node)

    # --- the rows ---------------------------------------------------------------------------------

    def _at_rest(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.start()
            node.stop()
        for _ in range(self.scale.starts):
            for node in nodes:
                self._note("start to ready", node, {"s": node.start()})
                node.stop()
        for node in nodes:
            node.start()
        time.sleep(min(3.0, self.scale.idle_s))
        for node in nodes:
            self._note("idle, resident", node, {"mb": resident_mb(node.pid)})
            before = cpu_seconds(node.pid)
            time.sleep(self.scale.idle_s)
            used = cpu_seconds(node.pid) - before
            self._note("idle", node, {"percent": 100 * used / self.scale.idle_s})

    def _clients(self, node: Node, number: int, size_bytes: int, text: str) -> None:
        say(f"{node.name}: records of {text}, round {number + 1}")
        # Small records cost the clients, not the broker: fewer bytes, about the same time.
        records = self.scale.records if size_bytes == 1024 else 2 * self.scale.records
        for acks in ("all", "1"):
            topic = f"one-{acks}-{size_bytes}-{number}"
            made = produce(node, topic, records, size_bytes, acks)
            self._note(f"1 producer, acks={acks}, {text}", node, made)
            if self.java.has_load:
                made = self.java.load(
                    node,
                    f"ten-{acks}-{size_bytes}-{number}",
                    producers=10,
                    size_bytes=size_bytes,
                    acks=acks,
                    seconds=self.scale.seconds,
                )
                row = f"10 producers, acks={acks}, {text}"
                self._note(row, node, made, "mb_per_s", "p99_ms", "cpu_s_per_gb")
        made = produce_librdkafka(node, f"rd-{size_bytes}-{number}", records, size_bytes)
        self._note(f"librdkafka, acks=all, {text}", node, made)
        topic = f"one-all-{size_bytes}-{number}"
        make_cold(node, topic)
        self._note(f"consume cold, {text}", node, consume(node, topic, records, size_bytes))

    def _blasts(self, nodes: list[Node], number: int) -> None:
        for name, arguments in BLASTS:
            for node in nodes:
                self._blast(node, node.name, name, arguments, f"blast-{number}")

    def _blast(
        self, node: Node, column: str, name: str, arguments: tuple[str, ...], topic: str
    ) -> None:
        say(f"{column}: blast, {name}")
        topic = f"{topic}-{re.sub(r'[^0-9a-zA-Z]+', '-', name)}"
        create_topic(node, topic, 10)
        made = blast(node, topic, *arguments, *IN_FLIGHT, "--seconds", str(self.scale.blast_s))
        units = ("mb_per_s", "cpu_s_per_gb")
        if name.startswith(ONE_RECORD):
            units = ("requests_per_s", "cpu_us_per_request")
        self._note(f"blast, {name}", column, made, *units)

    def _half_rate(self, nodes: list[Node]) -> None:
        if not self.java.has_load:
            return
        for size_bytes, text in SIZES:
            row = f"1 producer, acks=all, {text}"
            most = [self.results.median(row, "mb_per_s", node.name) or 0.0 for node in nodes]
            rate = int(min(most) * 1e6 / size_bytes / 2)
            for node in nodes:
                say(f"{node.name}: {rate} records of {text} a second, with a consumer")
                made = self.java.load(
                    node,
                    f"half-{size_bytes}",
                    producers=1,
                    size_bytes=size_bytes,
                    acks="all",
                    rate=rate,
                    warmup_s=min(10, self.scale.rate_seconds),
                    seconds=self.scale.rate_seconds,
                    tail=True,
                )
                units = ("p50_ms", "p99_ms", "tail_p99_ms", "cpu_s_per_gb")
                self._note(f"half of the maximum, {text}", node, made, *units)

    def _cost_of_walking(self) -> None:
        """What checking every record costs: the same loads on two fresh nodes of ours."""
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
                    say(f"{column}: what walking costs, round {number + 1}")
                    for size_bytes, text in SIZES:
                        records = self.scale.records // 3
                        made = produce(
                            node, f"walk-{size_bytes}-{number}", records, size_bytes, "all"
                        )
                        self._note(f"walk: 1 producer, acks=all, {text}", column, made)
                    for name, arguments in (BLASTS[0], BLASTS[2]):
                        self._blast(node, column, f"walk: {name}", arguments, f"walk-{number}")
        finally:
            for node in nodes.values():
                node.stop()


# --- the report -----------------------------------------------------------------------------------


def table(results: Results, ours: str, theirs: str, heads: tuple[str, str], walk: bool) -> str:
    """The rows of two columns and their ratio, as Markdown."""
    lines = [f"| | {heads[0]} | {heads[1]} | ratio |", "|---|---|---|---|"]
    for row, unit in results.rows:
        if ("walk: " in row) is not walk:
            continue
        mine = results.median(row, unit, ours)
        other = results.median(row, unit, theirs)
        if mine is None or other is None:
            continue
        ratio = f"{mine / other:.2f}" if other else "-"
        name = row.replace("walk: ", "")
        lines.append(f"| {name}: {UNITS[unit]} | {_shown(mine)} | {_shown(other)} | {ratio} |")
    return "\n".join(lines)


def _shown(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def report(results: Results) -> str:
    """Both tables."""
    first = table(results, KRAFTBOX, KAFKA, ("Kraftbox", "Kafka 4.3.1"), walk=False)
    second = table(results, VALIDATING, KRAFTBOX, ("every record checked", "default"), walk=True)
    return f"{first}\n\nWith `kraftbox.produce.validate.records=true`:\n\n{second}"


def put_into(path: Path, text: str) -> None:
    """Replace what stands between the marks of a Markdown file. ValueError without marks."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no marks {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """See the module's description."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a try of every step, no figures")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument("--markdown", type=Path, help="put the tables between the marks in there")
    options = parser.parse_args()
    scale = QUICK if options.quick else Scale()
    if options.rounds:
        scale = Scale(**{**scale.__dict__, "rounds": options.rounds})
    place = Path(tempfile.mkdtemp(prefix="kraftbox-bench-"))
    run = Run(place, scale)
    try:
        run.compare()
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if options.json:
            raw = {f"{row}: {UNITS[unit]}": by for (row, unit), by in run.results.rows.items()}
            options.json.write_text(json.dumps(raw, indent=1))
    text = report(run.results)
    print(text)
    if options.markdown:
        put_into(options.markdown, text)


if __name__ == "__main__":
    main()
