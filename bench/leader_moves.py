"""What it costs a producer that all leaderships move: KIP-951's micro-benchmark.

    python -m bench.leader_moves [--kafka] [--rounds 3] [--rate 300] [--moves 5] [--quick]
                                 [--json FILE] [--markdown docs/benchmarks.md]
    python -m bench.pictures leader-moves FILE.json OUT.png

kafka-producer-perf-test sends records of 1,000 bytes at a fixed rate to a topic of 100 partitions
with three replicas: acks=all, linger.ms=0, batch.size=16384. While it runs, the replicas of every
partition are rotated and the preferred leaders elected, which moves all leaderships at once, and
that several times. Counted are the times of all sends but those of a warm-up, by the tool itself.

Three in turn, in each round: Kraftbox naming the new leader in a refusal (KIP-951), Kraftbox
without it, which is the same running cluster with `kraftbox.leader.discovery.enable` switched off,
and with `--kafka` Apache Kafka, which names leaders, too. Of ours the brokers count refused
produces and Metadata requests. Kafka's producer asks for metadata after a refusal also where it
does not wait for the answer: this number is not the one on the critical path.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.clients import create_topic, delete_topics
from bench.clusters import Cluster, Kafka, Kraftbox, is_broker
from bench.nodes import DELETE_SOON, keep_bytecode
from bench.place import bench_place
from bench.report import keep, options_of, shown
from bench.single_node import say
from client.addresses import Address
from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from testkit.kafka.nodes import kafka_class_path

TOPIC: Final = "moves"
RECORD_BYTES: Final = 1_000
BROKERS: Final = 3
WARM_S: Final = 10
REST_S: Final = 4.0
"""Between two moves: the tail of one is not to be counted to the next."""
PATIENCE_S: Final = 180.0
MARK: Final = "leader-moves"
HINTS, NO_HINTS, KAFKA = "Kraftbox", "Kraftbox without KIP-951", "Kafka 4.3.1"
SWITCH: Final = "kraftbox.leader.discovery.enable"
SETTINGS: Final = {**DELETE_SOON, "auto.leader.rebalance.enable": "false"}
FREE_BYTES_MIN: Final = 4 << 30

Assignment = dict[int, tuple[int, ...]]
_SUMMARY: Final = re.compile(
    r"([\d.]+) records/sec .* ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
)
_SENT: Final = re.compile(r"^(\d+) records sent")


class Sends(NamedTuple):
    """The times of a run's sends in milliseconds, and how many a second there were."""

    rate: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float


class Asked(NamedTuple):
    """What our brokers counted."""

    refused: float
    metadata: float


class Row(NamedTuple):
    """One run of one of the three. `refused` and `metadata` are None where nobody counted."""

    name: str
    round: int
    moved: int
    rate: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    refused: float | None
    metadata: float | None


def sends_of(output: str) -> Sends:
    """The last summary of kafka-producer-perf-test: the one without the warm-up. ValueError where
    there is none."""
    found = _SUMMARY.findall(output)
    if not found:
        raise ValueError(output)
    return Sends(*map(float, found[-1]))


def rotated(assignment: Mapping[int, Sequence[int]]) -> Assignment:
    """Each partition's replicas, the first of them last: the second will lead."""
    return {index: (*replicas[1:], replicas[0]) for index, replicas in assignment.items()}


def asked_of(scrapes: Iterable[str]) -> Asked:
    """Refused produces and Metadata requests since the start, of all brokers' metrics."""
    refused = metadata = 0.0
    for line in "\n".join(scrapes).splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("kafka_network_requestmetrics_errors_total{"):
            if 'request="Produce"' in name and "NOT_LEADER_OR_FOLLOWER" in name:
                refused += float(value)
        elif name.startswith("kafka_network_requestmetrics_requests_total{"):
            metadata += float(value) if 'request="Metadata"' in name else 0.0
    return Asked(refused, metadata)


def table(rows: Sequence[Row]) -> str:
    """Of each figure the median of the rounds, and its spread where there were several."""
    names = [name for name in (HINTS, NO_HINTS, KAFKA) if any(row.name == name for row in rows)]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    figures = {
        "p50 ms": "p50_ms",
        "p95 ms": "p95_ms",
        "p99 ms": "p99_ms",
        "p99.9 ms": "p999_ms",
        "longest send ms": "max_ms",
        "records/s": "rate",
        "leaderships moved": "moved",
        "produces refused": "refused",
        "Metadata requests": "metadata",
    }
    for text, field in figures.items():
        cells = []
        for name in names:
            found = [getattr(row, field) for row in rows if row.name == name]
            cells.append(_cell([value for value in found if value is not None]))
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    median = shown(statistics.median(values))
    least, most = shown(min(values)), shown(max(values))
    return median if least == most else f"{median} ({least} to {most})"


def producer_command(bootstrap: str, rate: int, seconds: int) -> list[str]:
    """kafka-producer-perf-test as KIP-951 ran it, at this rate, and so long after its warm-up."""
    return [
        *("java", "-Xmx512m", "-cp", kafka_class_path()),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--bootstrap-server", bootstrap),
        *("--num-records", str(rate * (WARM_S + seconds)), "--warmup-records", str(rate * WARM_S)),
        *("--record-size", str(RECORD_BYTES), "--throughput", str(rate)),
        *("--reporting-interval", "1000"),
        *("--command-property", "acks=all", "linger.ms=0", "batch.size=16384"),
    ]


class Mover:
    """Moves all leaderships of the topic to the next broker."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)

    async def move(self) -> int:
        """Until every partition has the leader that it should have; returns how many moved."""
        partitions = (await self._cluster.metadata([TOPIC])).topics[0].partitions
        before = {each.partition_index: each.leader_id for each in partitions}
        wanted = rotated({each.partition_index: tuple(each.replica_nodes) for each in partitions})
        await self._reorder(wanted)
        await self._elect(wanted)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            partitions = (await self._cluster.metadata([TOPIC])).topics[0].partitions
            now = {each.partition_index: each.leader_id for each in partitions}
            if now == {index: replicas[0] for index, replicas in wanted.items()}:
                return sum(now[index] != before[index] for index in now)
            if time.monotonic() > deadline:
                raise TimeoutError("leaderships did not move")
            await asyncio.sleep(0.2)

    async def _reorder(self, wanted: Assignment) -> None:
        request = AlterPartitionReassignmentsRequest(
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=TOPIC,
                    partitions=[
                        AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=index, replicas=list(replicas)
                        )
                        for index, replicas in wanted.items()
                    ],
                )
            ],
        )
        answer = await self._cluster.request_any(request)
        codes = {one.error_code for one in answer.responses[0].partitions}
        if answer.error_code or codes != {ErrorCode.NONE}:
            raise RuntimeError(f"replicas were not rotated: {answer.error_code}, {codes}")

    async def _elect(self, wanted: Assignment) -> None:
        """Preferred leaders that have just restarted, or lag, are tried again."""
        deadline = time.monotonic() + PATIENCE_S
        left = [(TOPIC, index) for index in wanted]
        while left:
            results = await self._admin.elect_leaders(ElectionType.PREFERRED, left)
            done = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
            left = [one for one in left if results[one].error not in done]
            if left and time.monotonic() > deadline:
                raise TimeoutError(f"not elected: {left[:3]}")


def addresses(bootstrap: str) -> list[Address]:
    """HOST:PORT,... as our client takes it."""
    pairs = (each.rpartition(":") for each in bootstrap.split(","))
    return [(host, int(port)) for host, _, port in pairs]


async def run(cluster: Cluster, rate: int, moves: int) -> tuple[Sends, int]:
    """One run of the tool with so many moves; its figures, and how many leaderships moved."""
    client = await ClusterClient.connect(addresses(cluster.bootstrap), "mover")
    mover, moved, sent = Mover(client), 0, 0
    lines: list[str] = []
    seconds = int(moves * (REST_S + 1) + REST_S)
    process = await asyncio.create_subprocess_exec(
        *producer_command(cluster.bootstrap, rate, seconds), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    warm = asyncio.Event()

    async def read(output: asyncio.StreamReader) -> None:
        nonlocal sent
        async for raw in output:
            line = raw.decode()
            lines.append(line)
            progress = _SENT.match(line)
            sent += int(progress[1]) if progress else 0
            if sent >= rate * WARM_S:
                warm.set()
        warm.set()

    reading = asyncio.create_task(read(process.stdout))
    try:
        await asyncio.wait_for(warm.wait(), PATIENCE_S)
        for _ in range(moves):
            await asyncio.sleep(REST_S)
            moved += await mover.move()
        await asyncio.wait_for(reading, PATIENCE_S + seconds)
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await client.close()
    return sends_of("".join(lines)), moved


async def switch(cluster: Cluster, on: bool) -> None:
    """Whether all brokers name the new leader, from now on."""
    client = await ClusterClient.connect(addresses(cluster.bootstrap), "switch")
    try:
        change = ConfigChange(SWITCH, ConfigOperation.SET, str(on).lower())
        await Admin(client).alter_configs(ResourceType.BROKER, "", [change])
    finally:
        await client.close()


class Comparison:
    """All rounds of one command."""

    def __init__(self, place: Path, options: argparse.Namespace) -> None:
        self._options = options
        self._ours = Kraftbox(place / "kraftbox", 1, BROKERS, settings=SETTINGS)
        self._clusters: list[Cluster] = [self._ours]
        self._kafka: Kafka | None = None
        if options.kafka:
            self._kafka = Kafka(place / "kafka", 1, BROKERS, settings=SETTINGS)
            self._clusters.append(self._kafka)
        self.rows: list[Row] = []

    def compare(self) -> None:
        """Fills `rows`."""
        try:
            for cluster in self._clusters:
                cluster.start()
            for number in range(1, self._options.rounds + 1):
                names = [HINTS, NO_HINTS, *([KAFKA] if self._kafka else [])]
                # Nobody is always the one that follows another's load.
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    self.rows.append(self._one(name, number))
                    say(str(self.rows[-1]))
        finally:
            for cluster in self._clusters:
                cluster.stop()

    def _one(self, name: str, number: int) -> Row:
        cluster: Cluster = self._ours
        if name == KAFKA and self._kafka is not None:
            cluster = self._kafka
        else:
            asyncio.run(switch(self._ours, name == HINTS))
        create_topic(
            cluster, TOPIC, self._options.partitions, BROKERS, {"min.insync.replicas": "2"}
        )
        before = self._counted(cluster)
        sends, moved = asyncio.run(run(cluster, self._options.rate, self._options.moves))
        after = self._counted(cluster)
        delete_topics(cluster, TOPIC)
        counts = (None, None) if after is None or before is None else _between(before, after)
        return Row(name, number, moved, refused=counts[0], metadata=counts[1], **sends._asdict())

    def _counted(self, cluster: Cluster) -> Asked | None:
        if cluster is not self._ours:
            return None
        brokers = filter(is_broker, self._ours.node_pids())
        return asked_of(self._ours.scrape(node_id) for node_id in brokers)


def _between(before: Asked, after: Asked) -> tuple[float, float]:
    return after.refused - before.refused, after.metadata - before.metadata


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's description."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka beside ours")
    parser.add_argument("--rate", type=int, default=300, help="records a second")
    parser.add_argument("--moves", type=int, default=5, help="moves of all leaderships, each run")
    parser.add_argument("--partitions", type=int, default=100)
    options = options_of(parser, arguments)
    if options.quick:
        options.rounds, options.moves, options.rate = 1, 1, 200
    with bench_place(FREE_BYTES_MIN) as place:
        keep_bytecode(place)
        comparison = Comparison(place, options)
        try:
            comparison.compare()
        finally:
            text = table(comparison.rows)
            print(text)
            keep(options, MARK, text, comparison.rows)


if __name__ == "__main__":
    main()
