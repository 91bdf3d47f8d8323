"""One node beside one Apache Kafka node, in one run: `make bench`.

Both serve the same commands in turn, so that a shared machine's drift hits both; what counts is
the ratio. The JVM is warmed with 1 GB before anything of it is counted. Nothing here passes or
fails.

Prints a Markdown table (for docs/benchmarks.md) and, with --json FILE, the raw figures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.nodes import ApacheKafkaNode, KraftboxNode, free_port, kafka_class_path

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
IDLE_SECONDS = 15
_PRODUCED = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).* (\d+) ms 99th,"
)


@dataclass
class Figures:
    """What was measured of one node; lists hold one value a repetition."""

    ready_s: list[float] = field(default_factory=list)
    resident_mb_fresh: float = 0.0
    resident_mb_after: float = 0.0
    idle_core_percent: float = 0.0
    produce: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    consume: dict[str, list[float]] = field(default_factory=dict)


def cpu_seconds(pid: int) -> float:
    """User and system seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Resident set in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


class Kraftbox:
    """Our node under measurement."""

    name = "kraftbox"

    def __init__(self, place: Path) -> None:
        self.node = KraftboxNode(place / "kraftbox")

    def start(self) -> float:
        """Start; returns seconds from the command to ready."""
        begin = time.monotonic()
        self.node.start()
        return time.monotonic() - begin

    def stop(self) -> None:
        self.node.stop()

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    @property
    def pid(self) -> int:
        return self.node.pid


class Kafka:
    """Apache Kafka 4.3.1, one combined node with the settings that `kraftbox up` makes."""

    name = "kafka"

    def __init__(self, place: Path, port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        controller = port + 1
        self.node = ApacheKafkaNode(
            place / "kafka",
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(place / "kafka" / "data"),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
            },
            heap="1g",
        )
        self.node.format(CLUSTER_ID)

    def start(self) -> float:
        begin = time.monotonic()
        self.node.start()
        return time.monotonic() - begin

    def stop(self) -> None:
        self.node.stop()

    @property
    def pid(self) -> int:
        return self.node.pid


Node = Kraftbox | Kafka


def java(*arguments: str) -> str:
    """Run one of Kafka's tools; returns what it printed."""
    command = ["java", "-Xmx512m", "-cp", kafka_class_path(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def produce(
    node: Node, topic: str, records: int, size_bytes: int, acks: str, throughput: int = -1
) -> dict[str, float]:
    """kafka-producer-perf-test; returns MB/s, p99 and the broker's CPU seconds per GB."""
    before = cpu_seconds(node.pid)
    output = java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size_bytes)),
        *("--throughput", str(throughput), "--bootstrap-server", node.bootstrap),
        *("--command-property", f"acks={acks}", "batch.size=65536", "linger.ms=5"),
    )
    found = _PRODUCED.findall(output)
    if not found:
        raise RuntimeError(output)
    cpu = cpu_seconds(node.pid) - before
    return {
        "mb_per_s": float(found[-1][2]),
        "p99_ms": float(found[-1][3]),
        "cpu_s_per_gb": cpu / (records * size_bytes / 1e9),
    }


def produce_librdkafka(node: Node, topic: str, records: int, size_bytes: int) -> dict[str, float]:
    """The same through confluent-kafka, in a process of its own."""
    before = cpu_seconds(node.pid)
    script = Path(__file__).with_name("librdkafka_producer.py")
    command = [sys.executable, str(script), node.bootstrap, topic, str(records), str(size_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    cpu = cpu_seconds(node.pid) - before
    figures["cpu_s_per_gb"] = cpu / (records * size_bytes / 1e9)
    return figures


def consume(node: Node, topic: str, records: int) -> float:
    """kafka-consumer-perf-test; returns MB/s while fetching."""
    output = java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--topic", topic, "--num-records", str(records), "--bootstrap-server", node.bootstrap),
    )
    return float(output.strip().splitlines()[-1].split(",")[8])


def measure(nodes: list[Node], megabytes: int, rounds: int) -> dict[str, Figures]:
    """All figures of both nodes, taken in turn."""
    results = {node.name: Figures() for node in nodes}
    for _ in range(3):
        for node in nodes:
            results[node.name].ready_s.append(node.start())
            node.stop()
    for node in nodes:
        node.start()
    time.sleep(3)
    for node in nodes:
        results[node.name].resident_mb_fresh = resident_mb(node.pid)
        before = cpu_seconds(node.pid)
        time.sleep(IDLE_SECONDS)
        used = cpu_seconds(node.pid) - before
        results[node.name].idle_core_percent = 100 * used / IDLE_SECONDS
    for node in nodes:
        say(f"warming {node.name} with 1 GB")
        produce(node, "warm", 1_000_000, 1024, "all")
    for number in range(rounds):
        for size_bytes in (1024, 100):
            # 100 B records cost the clients, not the broker: fewer bytes, same time.
            records = megabytes * 1_000_000 // (1024 if size_bytes == 1024 else 500)
            for node in nodes:
                _round(node, results[node.name], f"r{number}-{size_bytes}", records, size_bytes)
    for node in nodes:
        results[node.name].resident_mb_after = resident_mb(node.pid)
        node.stop()
    return results


def _round(node: Node, figures: Figures, topic: str, records: int, size_bytes: int) -> None:
    say(f"{node.name}: {records} records of {size_bytes} B")
    for name, acks in (("acks=all", "all"), ("acks=1", "1")):
        made = produce(node, f"{topic}-{acks}", records, size_bytes, acks)
        figures.produce.setdefault(f"Java {name} {size_bytes} B", []).append(made)
    made = produce_librdkafka(node, f"{topic}-rd", records, size_bytes)
    figures.produce.setdefault(f"librdkafka acks=all {size_bytes} B", []).append(made)
    read = consume(node, f"{topic}-all", records)
    figures.consume.setdefault(f"Java {size_bytes} B", []).append(read)


def table(results: dict[str, Figures]) -> str:
    """The figures as Markdown, with the ratio ours / Kafka's."""
    ours, theirs = results["kraftbox"], results["kafka"]
    rows = [
        ("start to ready, s", _median(ours.ready_s), _median(theirs.ready_s)),
        ("resident, idle, MB", ours.resident_mb_fresh, theirs.resident_mb_fresh),
        ("resident, after load, MB", ours.resident_mb_after, theirs.resident_mb_after),
        ("idle, % of a core", ours.idle_core_percent, theirs.idle_core_percent),
    ]
    for key in ours.produce:
        for what, unit in (
            ("mb_per_s", "MB/s"),
            ("p99_ms", "p99 ms"),
            ("cpu_s_per_gb", "broker CPU s/GB"),
        ):
            mine = _median([one[what] for one in ours.produce[key]])
            other = _median([one[what] for one in theirs.produce[key]])
            rows.append((f"produce {key}, {unit}", mine, other))
    for key in ours.consume:
        rows.append(
            (f"consume {key}, MB/s", _median(ours.consume[key]), _median(theirs.consume[key]))
        )
    lines = ["| | Kraftbox | Kafka 4.3.1 | ratio |", "|---|---|---|---|"]
    for name, mine, other in rows:
        ratio = f"{mine / other:.2f}" if other else "-"
        lines.append(f"| {name} | {mine:.2f} | {other:.2f} | {ratio} |")
    return "\n".join(lines)


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """See the module's description."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=700, help="of 1 KB records, per step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the raw figures there")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kraftbox-bench-"))
    nodes: list[Node] = [Kraftbox(place), Kafka(place, free_port())]
    try:
        results = measure(nodes, options.megabytes, options.rounds)
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(place, ignore_errors=True)
    print(table(results))
    if options.json:
        raw = {name: figures.__dict__ for name, figures in results.items()}
        options.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
