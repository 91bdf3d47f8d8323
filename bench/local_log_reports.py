"""Reports of local logs under load (KIP-1303): `python -m bench.local_log_reports`.

    python -m bench.local_log_reports [--minutes 3] [--partitions 1000] [--phases without with]
                                      [--markdown FILE] [--json FILE]

There are one controller and three brokers. Every partition has three replicas and gets a record
every few seconds, so that each always has something to report. The first phase has no thresholds,
the second has `leader.election.eligible.local.log.bytes`. The third, in a cluster of its own,
reports changes every second instead of every 30 seconds. At the end of each phase two brokers are
paused, one after the other. So followers leave their ISRs and rejoin, by AlterPartition requests,
which a report could delay.

The figures are the reports and their duration, the growth of the metadata log, how long ISR changes
waited for reports, and how long they took in total. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Producer

from audit.decoding.batches import Batch, split
from audit.decoding.records import is_change, local_logs
from audit.reading.segments import walk
from bench.nodes import cpu_seconds
from bench.place import bench_place
from bench.report import keep
from bench.single_node import say
from bench.timed_node import CHANGED, REFUSED, REPORTED, WAITED
from client.addresses import parse_addresses
from client.admin import Admin, ConfigChange, ConfigOperation, NewTopic, ResourceType
from client.cluster_client import ClusterClient
from testkit.processes.ending import end_on_sigterm
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.waiting import until

MARK = "local log reports"
TOPIC = "busy"
BROKERS = (2, 3, 4)
KEY = "leader.election.eligible.local.log.bytes"
INTERVAL_KEY = "kraftbox.local.log.report.interval.ms"
ON = {KEY: "1000000000"}
CLUSTERS: Sequence[tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]] = (
    ({}, {"without": {}, "with": ON}),
    ({INTERVAL_KEY: "1000"}, {"every second": ON}),
)
"""Clusters with the settings of their nodes, and the phases with their settings for all brokers."""
PHASES = [name for _, phases in CLUSTERS for name in phases]
FREE_BYTES_MIN = 2 << 30
SETTINGS = {
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
}
"""A paused broker is not fenced: its leaders report that it lags."""
ROUND_S = 4.0
"""The interval of records per partition."""
STILL_S, MOVING_S = 5.0, 7.0
STANDSTILLS = 2
SETTLE_S = 8.0


class Phase(NamedTuple):
    """The figures of one phase. Times are in ms."""

    seconds: float
    records_per_s: float
    reports: int
    report_ms: list[float]
    isr_changes: int
    change_ms: list[float]
    waited: int
    waited_ms_max: float
    refused: dict[str, int]
    """Numbers of ISR changes that the controller refused, by error code."""
    controller_cpu_s: float
    brokers_cpu_s: float
    metadata_records: int
    metadata_bytes: int
    with_tables: int


class Load:
    """A thread that sends a record to every partition in each round."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 20})
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        pause_s = ROUND_S / self._partitions
        due = time.monotonic()
        while not self._stop.is_set():
            for partition in range(self._partitions):
                self._producer.produce(TOPIC, b"x" * 100, partition=partition)
                self.sent += 1
                due += pause_s
            self._producer.poll(0)
            self._stop.wait(max(0.0, due - time.monotonic()))


def start(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "bench.timed_node", str(node.config), str(events_of(node))]
    with open(node.directory / "node.log", "ab") as log:
        node.process = subprocess.Popen(command, stdout=log, stderr=log)


def events_of(node: NodeProcess) -> Path:
    return node.directory / "events.json"


def noted(node: NodeProcess) -> list[Any]:
    """Return all events that the node has noted so far."""
    assert node.process is not None
    node.process.send_signal(signal.SIGUSR2)
    until(f"the events of node {node.id}", events_of(node).exists, 60)
    found: list[Any] = json.loads(events_of(node).read_text())
    return found


def batches(node: NodeProcess) -> list[tuple[int, Batch]]:
    """Return the batches of the node's metadata log, each with its time in ms."""
    found = []
    for segment in sorted(node.metadata_dir.glob("*.log")):
        for one in walk(str(segment)):
            if isinstance(one, Batch):
                found.append((one.header.max_timestamp, one))
    return found


class Window(NamedTuple):
    """A phase on both clocks (monotonic s, wall s), with its records and its CPU seconds.

    `cpu_s` has the CPU seconds of the controller and of all brokers.
    """

    begin: tuple[float, float]
    end: tuple[float, float]
    sent: int
    cpu_s: tuple[float, float]


async def one_phase(cluster: ProcessCluster, load: Load, seconds: float) -> Window:
    """Run the load alone, and then pause two brokers in turn."""
    begin, sent, cpu_s = (time.monotonic(), time.time()), load.sent, cpu_of(cluster)
    await asyncio.sleep(max(0.0, seconds - STANDSTILLS * (STILL_S + MOVING_S)))
    for number in BROKERS[:STANDSTILLS]:
        victim = cluster.nodes[number]
        victim.pause()
        try:
            await asyncio.sleep(STILL_S)
        finally:
            victim.resume()
        await asyncio.sleep(MOVING_S)
    end, (controller_s, brokers_s) = (time.monotonic(), time.time()), cpu_of(cluster)
    used = (controller_s - cpu_s[0], brokers_s - cpu_s[1])
    return Window(begin, end, load.sent - sent, used)


def cpu_of(cluster: ProcessCluster) -> tuple[float, float]:
    """Return the CPU seconds of the controller and of all brokers."""
    used = {
        number: cpu_seconds(node.process.pid)
        for number, node in cluster.nodes.items()
        if node.process is not None
    }
    return used.pop(cluster.controllers[0].id), sum(used.values())


async def measure(
    cluster: ProcessCluster,
    phases: Mapping[str, Mapping[str, str]],
    seconds: float,
    partitions: int,
) -> list[Window]:
    """Run the phases one after the other."""
    client = await connected(cluster.bootstrap)
    admin = Admin(client, 60_000)
    windows = []
    try:
        configs = {"min.insync.replicas": "1"}
        await admin.create_topics([NewTopic(TOPIC, partitions, 3, configs)])
        await client.topic(TOPIC, is_new=True)
        with Load(cluster.bootstrap, partitions) as load:
            for name, settings in phases.items():
                await asyncio.sleep(SETTLE_S)
                for key, value in settings.items():
                    change = ConfigChange(key, ConfigOperation.SET, value)
                    await admin.alter_configs(ResourceType.BROKER, "", [change])
                windows.append(await one_phase(cluster, load, seconds))
                say(f"{name}: done")
    finally:
        await client.close()
    return windows


async def connected(bootstrap: str) -> ClusterClient:
    deadline = time.monotonic() + 60
    while True:
        try:
            client = await ClusterClient.connect(parse_addresses(bootstrap), "bench")
            if len((await client.metadata([], 5_000)).brokers) == len(BROKERS):
                return client
            await client.close()
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not start")
        await asyncio.sleep(0.2)


def phase(window: Window, events: Sequence[Any], log: Sequence[tuple[int, Batch]]) -> Phase:
    (begin, wall), (end, wall_end) = window.begin, window.end
    took: dict[str, list[float]] = {WAITED: [], CHANGED: [], REPORTED: []}
    refused: Counter[str] = Counter()
    for kind, at, seconds in events:
        if not begin <= at <= end:
            continue
        if kind.startswith(REFUSED):
            refused[kind.removeprefix(REFUSED).strip()] += 1
        else:
            took[kind].append(1000 * seconds)
    inside = [batch for at_ms, batch in log if wall * 1000 <= at_ms <= wall_end * 1000]
    values = [row[3] or b"" for one in inside if not one.header.is_control for row in split(one)]
    waited = [ms for ms in took[WAITED] if ms > 0]
    return Phase(
        seconds=end - begin,
        records_per_s=window.sent / (end - begin),
        reports=len(took[REPORTED]),
        report_ms=took[REPORTED],
        isr_changes=len(took[CHANGED]),
        change_ms=took[CHANGED],
        waited=len(waited),
        waited_ms_max=max(waited, default=0.0),
        refused=dict(refused),
        controller_cpu_s=window.cpu_s[0],
        brokers_cpu_s=window.cpu_s[1],
        metadata_records=len(values),
        metadata_bytes=sum(one.header.size_bytes for one in inside),
        with_tables=sum(is_change(value) and local_logs(value) is not None for value in values),
    )


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def run(place: Path, minutes: float, partitions: int, names: Sequence[str]) -> list[Phase]:
    """Run the phases of these names, which share the time."""
    found = []
    for number, (settings, every) in enumerate(CLUSTERS):
        phases = {name: every[name] for name in every if name in names}
        if not phases:
            continue
        with ProcessCluster(
            place / str(number),
            controllers=1,
            brokers=len(BROKERS),
            settings={**SETTINGS, **settings},
        ) as cluster:
            cluster.format()
            for node in cluster.nodes.values():
                start(node)
            seconds = minutes * 60 / len(names)
            windows = asyncio.run(measure(cluster, phases, seconds, partitions))
            events: list[Any] = []
            for broker in cluster.brokers:
                events += noted(broker)
            log = batches(cluster.controllers[0])
        found += [phase(window, events, log) for window in windows]
    return found


def markdown(phases: Sequence[Phase], partitions: int, names: Sequence[str]) -> str:
    """Return the table, with a column per phase."""
    rows = [
        ("records per second", *(f"{one.records_per_s:.0f}" for one in phases)),
        ("reports", *(f"{one.reports:,}" for one in phases)),
        ("a report takes, p50 / p99 / max", *(_ms(one.report_ms) for one in phases)),
        ("ISR changes", *(f"{one.isr_changes:,}" for one in phases)),
        ("an ISR change takes, p50 / p99 / max", *(_ms(one.change_ms) for one in phases)),
        (
            "of them waited for a report, at most",
            *(f"{one.waited:,}, {one.waited_ms_max:.1f} ms" for one in phases),
        ),
        (
            "refused",
            *(
                ", ".join(f"{count:,} {code}" for code, count in one.refused.items()) or "none"
                for one in phases
            ),
        ),
        ("the controller's CPU", *(f"{one.controller_cpu_s:.1f} s" for one in phases)),
        ("the brokers' CPU", *(f"{one.brokers_cpu_s:.1f} s" for one in phases)),
        ("records of metadata with a table", *(f"{one.with_tables:,}" for one in phases)),
        (
            "the metadata log grows by",
            *(
                f"{one.metadata_records / one.seconds:.1f} records/s, "
                f"{one.metadata_bytes / one.seconds / 1024:.1f} KiB/s"
                for one in phases
            ),
        ),
    ]
    head = (f"{partitions:,} partitions, {phases[0].seconds:.0f} s each", *names)
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def _ms(values: Sequence[float]) -> str:
    if not values:
        return "none"
    parts = [quantile(values, 0.5), quantile(values, 0.99), max(values)]
    return " / ".join(f"{one:.1f}" for one in parts) + " ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="seconds of all phases together")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with bench_place(FREE_BYTES_MIN) as place:
        phases = run(place, options.minutes, options.partitions, options.phases)
    names = [name for name in PHASES if name in options.phases]
    text = markdown(phases, options.partitions, names)
    print(text)
    keep(options, MARK, text, phases)


if __name__ == "__main__":
    end_on_sigterm()
    main()
