"""Startup time of a local cluster, and its cost while it is idle.

Starts `kraftbox up --controllers 3 --brokers 3` several times, each time in a new directory and
then again in the same one. Memory is the proportional set size of all processes of the cluster,
including supervisor and fork server; idle CPU is that of all of them. With --kafka six Apache Kafka
processes of the same roles follow; their resident size is measured, too, because they share little
memory.

Prints a Markdown table and, with --json FILE, the raw figures. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.clusters import Kafka, Kraftbox, pss_mb
from bench.nodes import cpu_seconds, resident_mb
from testkit.processes.ending import end_on_sigterm

IDLE_SECONDS = 20
SETTLE_SECONDS = 5


def idle_core_percent(pids: Iterable[int], seconds: float) -> dict[int, float]:
    """Return the CPU of each process as a percentage of one core, while it is idle."""
    time.sleep(SETTLE_SECONDS)
    before = {pid: cpu_seconds(pid) for pid in pids}
    begin = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    return {pid: (cpu_seconds(pid) - used) / passed * 100 for pid, used in before.items()}


def measure_kraftbox(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    fresh, resumed, cpu = [], [], []
    for number in range(options.repeat):
        cluster = Kraftbox(
            place / f"kraftbox-{number}",
            options.controllers,
            options.brokers,
            combined=options.combined,
        )
        fresh.append(cluster.start())
        cpu.append(sum(map(cpu_seconds, cluster.pids().values())))
        cluster.stop()
        resumed.append(cluster.start())
        if number < options.repeat - 1:
            cluster.stop()
    pids = cluster.pids()
    idle = idle_core_percent(pids.values(), options.idle)
    memory = {name: pss_mb(pid) for name, pid in pids.items()}
    cluster.stop()
    return {
        "ready_s": fresh,
        "resumed_s": resumed,
        "ready_cpu_s": cpu,
        "pss_mb": memory,
        "idle_core_percent": {name: idle[pid] for name, pid in pids.items()},
    }


def measure_kafka(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    cluster = Kafka(place, options.controllers, options.brokers)
    try:
        ready = cluster.start()
        pids = {str(number): pid for number, pid in cluster.node_pids().items()}
        cpu = sum(map(cpu_seconds, pids.values()))
        idle = idle_core_percent(pids.values(), options.idle)
        return {
            "ready_s": [ready],
            "ready_cpu_s": [cpu],
            "pss_mb": {name: pss_mb(pid) for name, pid in pids.items()},
            "resident_mb": {name: resident_mb(pid) for name, pid in pids.items()},
            "idle_core_percent": {name: idle[pid] for name, pid in pids.items()},
        }
    finally:
        cluster.stop()


def print_table(found: dict[str, dict[str, Any]]) -> None:
    print(f"| | {' | '.join(found)} |")
    print(f"|---|{'---|' * len(found)}")

    def row(what: str, values: Iterable[str]) -> None:
        print(f"| {what} | {' | '.join(values)} |")

    for key, what in (
        ("ready_s", "ready, new directory (s: median, worst)"),
        ("resumed_s", "ready, resumed (s: median, worst)"),
        ("ready_cpu_s", "processor time until ready (s: median, worst)"),
    ):
        row(
            what,
            (
                f"{statistics.median(one[key]):.2f}, {max(one[key]):.2f}" if key in one else "-"
                for one in found.values()
            ),
        )
    for key, what in (
        ("pss_mb", "proportional set size, all (MiB)"),
        ("resident_mb", "resident, all (MiB)"),
        ("idle_core_percent", "idle, all (% of a core)"),
    ):
        row(
            what,
            (f"{sum(one[key].values()):.1f}" if key in one else "-" for one in found.values()),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--combined", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds to measure")
    parser.add_argument("--kafka", action="store_true", help="also measure Apache Kafka")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kraftbox-bench-"))
    try:
        found = {"kraftbox": measure_kraftbox(place, options)}
        if options.kafka:
            found["kafka"] = measure_kafka(place, options)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print_table(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    end_on_sigterm()
    main()
