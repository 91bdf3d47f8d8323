"""How soon a local cluster is ready, and what it costs while nobody asks it for anything.

Starts `kraftbox up --controllers 3 --brokers 3` several times, each time in a new directory and
once more on what is there. Memory is the proportional set size of every process of the cluster,
supervisor and fork server included; idle CPU is that of all of them. With --kafka six Apache Kafka
processes of the same roles follow; their memory is resident size too, because they share little.

Prints a Markdown table and, with --json FILE, the raw figures. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.nodes import CLUSTER_ID, cpu_seconds, resident_mb
from kraftbox.cluster import control
from kraftbox.cluster.place import ClusterPlace
from tests.support.nodes import ApacheKafkaNode, free_port

IDLE_SECONDS = 20
SETTLE_SECONDS = 5


def pss_mb(pid: int) -> float:
    """Proportional set size in MiB: shared pages count for each process by its share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def idle_core_percent(pids: Iterable[int], seconds: float) -> dict[int, float]:
    """CPU of each process as a share of one core, while nothing is asked of it."""
    time.sleep(SETTLE_SECONDS)
    before = {pid: cpu_seconds(pid) for pid in pids}
    begin = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    return {pid: (cpu_seconds(pid) - used) / passed * 100 for pid, used in before.items()}


class Kraftbox:
    """`kraftbox up` in the foreground, as a person starts it."""

    def __init__(self, directory: Path, controllers: int, brokers: int, combined: bool) -> None:
        self.place = ClusterPlace(directory)
        self._command = [sys.executable, "-m", "kraftbox", "up", "--dir", str(directory)]
        self._command += ["--port", "0", "--controllers", str(controllers)]
        self._command += ["--brokers", str(brokers), *(["--combined"] if combined else [])]

    def start(self) -> float:
        """Start; returns seconds from the command to the line that says it is ready."""
        begin = time.monotonic()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        seconds = time.monotonic() - begin
        if not line.startswith("bootstrap.servers="):
            raise RuntimeError(f"the cluster did not start: {line!r}")
        return seconds

    def pids(self) -> dict[str, int]:
        """Every process of the cluster, by name."""
        told = control.status(self.place)
        nodes = {f"node {node['id']}": node["pid"] for node in told["nodes"]}
        return {"supervisor": told["pid"], "fork server": told["forkServerPid"], **nodes}

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def measure_kraftbox(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    fresh, resumed, cpu = [], [], []
    for number in range(options.repeat):
        cluster = Kraftbox(
            place / f"kraftbox-{number}", options.controllers, options.brokers, options.combined
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


def kafka_nodes(place: Path, controllers: int, brokers: int) -> list[ApacheKafkaNode]:
    ports = {100 + number: free_port() for number in range(1, controllers + 1)}
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
    common = {
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    made = []
    for node_id in [*range(1, brokers + 1), *ports]:
        directory = place / f"kafka-{node_id}"
        is_broker = node_id not in ports
        name = "PLAINTEXT" if is_broker else "CONTROLLER"
        node = ApacheKafkaNode(
            directory,
            {
                "process.roles": "broker" if is_broker else "controller",
                "node.id": str(node_id),
                "listeners": f"{name}://127.0.0.1:{free_port() if is_broker else ports[node_id]}",
                "log.dirs": str(directory / "data"),
                **common,
            },
        )
        node.format(CLUSTER_ID)
        made.append(node)
    return made


def start_together(nodes: list[ApacheKafkaNode]) -> float:
    begin = time.monotonic()
    processes = []
    for node in nodes:
        log = node.directory / "kafka.log"
        with open(log, "wb") as output:
            processes.append(
                subprocess.Popen(
                    [*node._java(), "kafka.Kafka", str(node.config)],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        node._process = processes[-1]
    while not all("Kafka Server started" in node.log_text for node in nodes):
        if any(process.poll() is not None for process in processes):
            raise RuntimeError("a Kafka node ended")
        time.sleep(0.02)
    return time.monotonic() - begin


def measure_kafka(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    nodes = kafka_nodes(place, options.controllers, options.brokers)
    try:
        ready = start_together(nodes)
        pids = {node.settings["node.id"]: node.pid for node in nodes}
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
        for node in nodes:
            node.stop()


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
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds to watch")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka as well")
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
    main()
