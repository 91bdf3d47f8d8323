"""Comparison of three brokers with three of Apache Kafka: produce with acks=all, three replicas.

    python -m bench.replicated [--cases one,ten] [--minutes N | --rounds N] [--warm-mb 2000]
                               [--controllers 1] [--quick] [--profile]
                               [--markdown FILE] [--json FILE]

Both clusters run all the time and serve the same loads in turn, so that a shared machine's drift
affects both. The result is the ratio, the median of several rounds. Before the measurement each
cluster receives `--warm-mb` in partitions that are led by all its brokers. Nothing here passes or
fails.

Cases: `one` is one Java producer to one partition, `ten` are ten in one process to ten partitions;
both with records of 1 KB and of 100 B. `--profile` reports for each where the CPU of Kraftbox's
three brokers goes (`bench.profiled`); its figures must not be quoted.

A topic is deleted directly after its load, and warming is done in pieces, so that there are only
some gigabytes of data at a time. Everything is removed at the end, also after a failure or a
signal.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from bench.clients import Java, create_topic, delete_topics, produce
from bench.clusters import Cluster, Kafka, Kraftbox, pss_mb
from bench.nodes import DELETE_SOON, keep_bytecode
from bench.place import bench_place
from bench.profiled import Profiles, watched
from bench.report import put_between
from bench.single_node import KAFKA, KRAFTBOX, SIZES, UNITS, Results, say, table
from testkit.kafka.jars import ORACLE
from testkit.processes.ending import end_on_sigterm

BROKERS = 3
REPLICAS = 3
CONFIGS = {"min.insync.replicas": "2"}
CASES = {"one": (1, "1 producer"), "ten": (10, "10 producers")}
COUNTED = ("mb_per_s", "p50_ms", "p99_ms", "cpu_s_per_gb")
WARM_PIECE_MB = 500
FREE_BYTES_MIN = 16 << 30
MARK = "replicated"


class Run:
    """One comparison from the first start to the last stop."""

    def __init__(self, place: Path, options: argparse.Namespace) -> None:
        self.place = place
        self.options = options
        self.cases = [CASES[name] for name in options.cases.split(",")]
        self.java = Java(place)
        self.results = Results()
        self.profiles = Profiles(place) if options.profile else None
        self.began = time.monotonic()

    def compare(self) -> None:
        """Run the requested cases. Raises RuntimeError without a Java compiler."""
        if not self.java.has_load:
            raise RuntimeError("the load is a Java program: install a JDK")
        keep_bytecode(self.place)
        count = self.options.controllers
        clusters: list[Cluster] = [
            Kraftbox(self.place / KRAFTBOX, count, BROKERS, settings=DELETE_SOON),
            Kafka(self.place / KAFKA, count, BROKERS, settings=DELETE_SOON, heap="1g"),
        ]
        try:
            for cluster in clusters:
                self.results.add("start to ready", cluster.name, {"s": cluster.start()})
            for cluster in clusters:
                self._warm(cluster)
            self._rounds(clusters)
        finally:
            for cluster in clusters:
                cluster.stop()

    def _warm(self, cluster: Cluster) -> None:
        left_mb = self.options.warm_mb
        while left_mb > 0:
            say(f"warming {cluster.name}, {left_mb} MB to go")
            piece_mb = min(left_mb, WARM_PIECE_MB)
            create_topic(cluster, "warm", BROKERS, REPLICAS, CONFIGS)
            produce(cluster, "warm", piece_mb * 1_000_000 // 1024, 1024, "all")
            delete_topics(cluster, "warm")
            left_mb -= piece_mb

    def _rounds(self, clusters: list[Cluster]) -> None:
        for number in range(self.options.rounds):
            began = time.monotonic()
            for size_bytes, text in SIZES:
                for producers, name in self.cases:
                    # The order alternates, because the first one finds the disk busy with the
                    # other's data.
                    for cluster in clusters[:: -1 if number % 2 else 1]:
                        say(f"{cluster.name}: {name}, {text}, round {number + 1}")
                        self._load(cluster, producers, size_bytes, f"{name}, {text}")
            for cluster in clusters:
                self.results.add("the brokers' memory", cluster.name, {"mb": _memory_mb(cluster)})
            took_s = time.monotonic() - began
            say(f"round {number + 1} took {took_s:.0f} s")
            if 0 < self.options.minutes * 60 < time.monotonic() - self.began + took_s:
                break

    def _load(self, cluster: Cluster, producers: int, size_bytes: int, row: str) -> None:
        create_topic(cluster, "load", producers, REPLICAS, CONFIGS)
        with watched(self.profiles, row, cluster):
            made = self.java.load(
                cluster,
                "load",
                producers=producers,
                size_bytes=size_bytes,
                acks="all",
                warmup_s=self.options.warmup,
                seconds=self.options.seconds,
            )
        self.results.add(row, cluster.name, made, *COUNTED)
        delete_topics(cluster, "load")


def _memory_mb(cluster: Cluster) -> float:
    return sum(map(pss_mb, cluster.broker_pids()))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. Raises SystemExit for a case that does not exist."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated names")
    parser.add_argument("--rounds", type=int, default=0, help="default: 3")
    parser.add_argument(
        "--minutes",
        type=float,
        default=0,
        help="start no round that would end after this many minutes",
    )
    parser.add_argument(
        "--warm-mb",
        type=int,
        default=2000,
        help="MB written to each cluster before the first round",
    )
    parser.add_argument("--controllers", type=int, default=1, help="controllers of each cluster")
    parser.add_argument(
        "--warmup", type=int, default=4, help="seconds of a load before it is counted"
    )
    parser.add_argument(
        "--seconds", type=int, default=12, help="seconds of a load that are counted"
    )
    parser.add_argument("--quick", action="store_true", help="run every step once, without figures")
    parser.add_argument("--profile", action="store_true", help="profile the brokers' CPU time")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--markdown", type=Path, help="write the table between the marks of this file"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.cases.split(",")) - set(CASES):
        parser.error(f"unknown case: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    if options.quick:
        options.rounds, options.warm_mb, options.warmup, options.seconds = 1, 20, 1, 2
    if not options.rounds:
        options.rounds = 20 if options.minutes else 3
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    with bench_place(FREE_BYTES_MIN) as place:
        run = Run(place, options)
        try:
            run.compare()
        finally:
            if options.json:
                raw = {f"{row}: {UNITS[unit]}": by for (row, unit), by in run.results.rows.items()}
                options.json.write_text(json.dumps(raw, indent=1))
            text = table(run.results, KRAFTBOX, KAFKA, ("Kraftbox", f"Kafka {ORACLE}"), walk=False)
            print(text)
            if run.profiles is not None:
                print(f"\n{run.profiles.report()}")
            say(f"{(time.monotonic() - run.began) / 60:.1f} min in all")
    if options.markdown:
        put_between(options.markdown, MARK, text)


if __name__ == "__main__":
    end_on_sigterm()
    main()
