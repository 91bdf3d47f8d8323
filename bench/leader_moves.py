"""The cost of leadership moves for clients: KIP-951's micro-benchmark, and similar cases.

    python -m bench.leader_moves [--kafka] [--rounds 3] [--rate 300] [--times 3] [--quick]
                                 [--cases moves,consumer,librdkafka,killed,rolled]
                                 [--json FILE] [--markdown FILE]
    python -m bench.pictures leader-moves FILE.json OUT.png

A Java producer sends records of 1,000 bytes at a fixed rate to a topic of 100 partitions with three
replicas, as kafka-producer-perf-test does: acks=all, linger.ms=0, batch.size=16384. That tool
prints percentiles in whole milliseconds. `java/Moves.java` keeps the time of every send outside a
warm-up, in the middle of which all leaderships move once: the first refusal takes a JVM thirty
milliseconds. Then one of these events happens several times:

- `moves`: the replicas of every partition are rotated and the preferred leaders elected, which
  moves all leaderships at once
- `consumer`: the same, with a consumer of all partitions; the figure is the time from each record's
  acknowledgement until it was read
- `librdkafka`: the same with librdkafka as the producer
- `killed`: a broker is killed and started again
- `rolled`: all brokers are stopped and started, one after the other

Each round measures up to three clusters in turn:
- Kraftbox naming the new leader in a refusal (KIP-951);
- Kraftbox without it: the same running cluster with `kraftbox.leader.discovery.enable` off;
- with `--kafka` Apache Kafka, which also names leaders.

Before that each cluster serves a run that is not counted, and cases that restart brokers come last.
All cases but the first run with hints only. Kraftbox's brokers count refused produces and Metadata
requests. Kafka's producer requests metadata after a refusal even if it does not wait for the
response. A send that did wait took its `retry.backoff.ms` first, at least 80 ms. These sends are
counted; their number bounds the number of requests in the path of a send from above.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.clients import create_topic, delete_topics
from bench.clusters import Cluster, Kafka, Kraftbox, is_broker
from bench.nodes import DELETE_SOON, keep_bytecode
from bench.place import bench_place
from bench.report import keep, names_among, options_of, shown
from bench.single_node import say
from client.addresses import Address
from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from testkit.kafka.jars import ORACLE
from testkit.kafka.nodes import kafka_class_path
from testkit.processes.ending import end_on_sigterm

TOPIC: Final = "moves"
RECORD_BYTES: Final = 1_000
BROKERS: Final = 3
PARTITIONS: Final = 100
WARM_S: Final = 10
REST_S: Final = 4.0
"""Between two moves, so that the tail of one is not counted for the next."""
LOOK_AFTER_S: Final = 0.5
"""The process that moves leaderships must not compete with the brokers for two processors."""
PATIENCE_S: Final = 180.0
LINE_BYTES_MAX: Final = 1 << 24
MARK: Final = "leader-moves"
HINTS, NO_HINTS, KAFKA = "Kraftbox", "Kraftbox without KIP-951", f"Kafka {ORACLE}"
SWITCH: Final = "kraftbox.leader.discovery.enable"
SETTINGS: Final = {**DELETE_SOON, "auto.leader.rebalance.enable": "false"}
FREE_BYTES_MIN: Final = 4 << 30

Assignment = dict[int, tuple[int, ...]]
BACKOFF_MS: Final = 80.0
"""The minimum of Java's retry.backoff.ms with its jitter."""
BELOW_MS: Final = 20.0
MOVES, CONSUMER, LIBRDKAFKA, KILLED, ROLLED = "moves", "consumer", "librdkafka", "killed", "rolled"
CASES: Final = (MOVES, CONSUMER, LIBRDKAFKA, KILLED, ROLLED)

Counts = dict[str, int]
"""Numbers of times, by upper bound in tenths of a millisecond."""


class Times(NamedTuple):
    """The times of a run's sends or reads."""

    counts: Counts
    longest_ms: float
    slow: Sequence[Sequence[int]] = ()
    """For each slow one: wall-clock ms of the send, duration in microseconds, partition."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Times:
        return cls(dict(report["counts"]), report["longest_us"] / 1000, report.get("slow", ()))

    @property
    def number(self) -> int:
        return sum(self.counts.values())

    def percentile(self, share: float) -> float:
        """Return the percentile in milliseconds; 0 without times."""
        seen = 0
        for bound, count in sorted((int(bound), count) for bound, count in self.counts.items()):
            seen += count
            if seen >= share * self.number:
                return bound / 10
        return 0.0

    def above(self, limit_ms: float) -> int:
        """Return how many times are above `limit_ms`."""
        return sum(n for bound, n in self.counts.items() if int(bound) > limit_ms * 10)


class Asked(NamedTuple):
    """The counters of Kraftbox's brokers."""

    refused: float
    metadata: float


class Row(NamedTuple):
    """One run.

    `refused` and `metadata` are None if they were not counted; `reads` is of consumers. The
    percentiles are those of `sends`; `begun_ms` is the wall clock at each event.
    """

    case: str
    name: str
    round: int
    moved: int
    failed: int
    refused: float | None
    metadata: float | None
    sends: Times
    reads: Times
    p999_ms: float
    max_ms: float
    begun_ms: Sequence[int] = ()


def rotated(assignment: Mapping[int, Sequence[int]]) -> Assignment:
    """Rotate each partition's replicas by one, so that the second will lead."""
    return {index: (*replicas[1:], replicas[0]) for index, replicas in assignment.items()}


def asked_of(scrapes: Iterable[str]) -> Asked:
    """Return refused produces and Metadata requests since the start, from all brokers' metrics."""
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
    """Return the median of each figure, with the spread of several rounds, as Markdown.

    The moves have a column per cluster; the other cases follow.
    """
    names = [name for name in (HINTS, NO_HINTS, KAFKA) if any(row.name == name for row in rows)]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for case in CASES:
        if any(row.case == case for row in rows):
            for text, figure in _figures(case).items():
                cells = []
                for name in names:
                    found = [figure(row) for row in rows if (row.case, row.name) == (case, name)]
                    cells.append(_cell([value for value in found if value is not None]))
                lines.append(f"| {case}: {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _figures(case: str) -> dict[str, Callable[[Row], float | None]]:
    figures: dict[str, Callable[[Row], float | None]] = {
        "p50 ms": lambda row: row.sends.percentile(0.5),
        "p95 ms": lambda row: row.sends.percentile(0.95),
        "p99 ms": lambda row: row.sends.percentile(0.99),
        "p99.9 ms": lambda row: row.sends.percentile(0.999),
        "longest send ms": lambda row: row.sends.longest_ms,
        f"sends above {BELOW_MS:.0f} ms": lambda row: row.sends.above(BELOW_MS),
        f"sends above {BACKOFF_MS:.0f} ms": lambda row: row.sends.above(BACKOFF_MS),
        "sends": lambda row: row.sends.number,
    }
    if case == CONSUMER:
        figures |= {
            "read p99 ms after the acknowledgement": lambda row: row.reads.percentile(0.99),
            "read p99.9 ms": lambda row: row.reads.percentile(0.999),
            "longest until read ms": lambda row: row.reads.longest_ms,
        }
    if case == MOVES:
        figures |= {
            "leaderships moved": lambda row: row.moved,
            "produces refused": lambda row: row.refused,
            "Metadata requests": lambda row: row.metadata,
        }
    return figures


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    median = shown(statistics.median(values))
    least, most = shown(min(values)), shown(max(values))
    return median if least == most else f"{median} ({least} to {most})"


class Clients:
    """The sending programs; the Java one is compiled at creation."""

    def __init__(self, place: Path) -> None:
        if not shutil.which("javac"):
            raise RuntimeError("javac is not installed")
        self._classes = place / "classes"
        source = Path(__file__).with_name("java") / "Moves.java"
        subprocess.run(
            ["javac", "-cp", kafka_class_path(), "-d", str(self._classes), str(source)], check=True
        )

    def command(self, case: str, bootstrap: str, rate: int, seconds: int) -> list[str]:
        """Return the command of the producer, with its rate and the seconds after its warm-up."""
        options = {
            "bootstrap": bootstrap,
            "topic": TOPIC,
            "partitions": PARTITIONS,
            "size": RECORD_BYTES,
            "rate": rate,
            "warmup": WARM_S,
            "seconds": seconds,
            "consume": str(case == CONSUMER).lower(),
        }
        java = ["java", "-Xmx512m", "-cp", kafka_class_path(self._classes), "Moves"]
        python = [sys.executable, "-m", "bench.librdkafka_moves"]
        program = python if case == LIBRDKAFKA else java
        return [*program, *(f"{key}={value}" for key, value in options.items())]


class Mover:
    """Moves all leaderships of a topic to the next broker."""

    def __init__(self, cluster: ClusterClient, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._topic = topic
        self._admin = Admin(cluster)

    async def move(self) -> int:
        """Move, wait until every partition has its new leader, and return how many moved."""
        partitions = (await self._cluster.metadata([self._topic])).topics[0].partitions
        before = {each.partition_index: each.leader_id for each in partitions}
        wanted = rotated({each.partition_index: tuple(each.replica_nodes) for each in partitions})
        await self._reorder(wanted)
        return await self._led_by_the_first(before, wanted)

    async def home(self) -> int:
        """Elect the first replica of each partition again; return how many leaderships moved."""
        partitions = (await self._cluster.metadata([self._topic])).topics[0].partitions
        before = {each.partition_index: each.leader_id for each in partitions}
        wanted = {each.partition_index: tuple(each.replica_nodes) for each in partitions}
        return await self._led_by_the_first(before, wanted)

    async def _led_by_the_first(self, before: Mapping[int, int], wanted: Assignment) -> int:
        await self._elect(wanted)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        await asyncio.sleep(LOOK_AFTER_S)
        while True:
            partitions = (await self._cluster.metadata([self._topic])).topics[0].partitions
            now = {each.partition_index: each.leader_id for each in partitions}
            if now == {index: replicas[0] for index, replicas in wanted.items()}:
                return sum(now[index] != before[index] for index in now)
            if loop.time() > deadline:
                raise TimeoutError("leaderships did not move in time")
            await asyncio.sleep(0.2)

    async def _reorder(self, wanted: Assignment) -> None:
        request = AlterPartitionReassignmentsRequest(
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=self._topic,
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
            raise RuntimeError(f"cannot rotate the replicas: {answer.error_code}, {codes}")

    async def _elect(self, wanted: Assignment) -> None:
        """Elect preferred leaders; retry those that have just restarted, or lag."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        left = [(self._topic, index) for index in wanted]
        while left:
            results = await self._admin.elect_leaders(ElectionType.PREFERRED, left)
            done = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
            left = [one for one in left if results[one].error not in done]
            if left and loop.time() > deadline:
                raise TimeoutError(f"no leader elected for {left[:3]}")


def addresses(bootstrap: str) -> list[Address]:
    """Parse HOST:PORT,... into the addresses of our client."""
    pairs = (each.rpartition(":") for each in bootstrap.split(","))
    return [(host, int(port)) for host, _, port in pairs]


class Events:
    """The events of a cluster while clients send."""

    def __init__(self, cluster: Cluster, client: ClusterClient) -> None:
        self._cluster = cluster
        self._mover = Mover(client)
        self._next = 0

    async def happen(self, case: str) -> int:
        """Cause one event; return how many leaderships moved by request."""
        if case == KILLED:
            victim = 1 + self._next % BROKERS
            self._next += 1
            self._cluster.kill(victim)
            await asyncio.sleep(REST_S)
            await asyncio.to_thread(self._cluster.restart, victim)
            return await self._mover.home()
        if case == ROLLED:
            for broker in range(1, BROKERS + 1):
                await asyncio.to_thread(self._cluster.bounce, broker)
                await asyncio.sleep(REST_S / 2)
            return await self._mover.home()
        return await self._mover.move()

    async def warm(self) -> None:
        """Move once without counting, because a client takes longer at the first time."""
        await self._mover.move()

    @staticmethod
    def seconds(case: str) -> float:
        """Return the approximate duration of one event."""
        return {KILLED: 2 * REST_S + 2, ROLLED: BROKERS * (REST_S / 2 + 3)}.get(case, 1.0)


async def run(
    cluster: Cluster, clients: Clients, case: str, rate: int, times: int
) -> tuple[Mapping[str, Any], int, list[int]]:
    """Run once.

    Returns: the client's output, the number of requested moves, the times of events.
    """
    client = await ClusterClient.connect(addresses(cluster.bootstrap), "mover")
    events, moved = Events(cluster, client), 0
    begun_ms = []
    seconds = int(times * (REST_S + Events.seconds(case)) + REST_S)
    process = await asyncio.create_subprocess_exec(
        *clients.command(case, cluster.bootstrap, rate, seconds),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LINE_BYTES_MAX,
    )
    assert process.stdout is not None
    try:
        await _heard(process.stdout, b"sending")
        await events.warm()
        await _heard(process.stdout, b"warm")
        for _ in range(times):
            await asyncio.sleep(REST_S)
            begun_ms.append(int(time.time() * 1000))
            moved += await events.happen(case)
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S + seconds)
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await client.close()
    answer: Mapping[str, Any] = json.loads(line)
    return answer, moved, begun_ms


async def _heard(output: asyncio.StreamReader, word: bytes) -> None:
    """Wait until the client prints this word. Raises RuntimeError for another one."""
    line = await asyncio.wait_for(output.readline(), PATIENCE_S)
    if line.strip() != word:
        raise RuntimeError(f"expected {word!r} from the client, got {line!r}")


async def switch(cluster: Cluster, on: bool) -> None:
    """Set whether all brokers name the new leader, from now on."""
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
        self._clients = Clients(place)
        self._ours = Kraftbox(place / "kraftbox", 1, BROKERS, settings=SETTINGS)
        self._clusters: list[Cluster] = [self._ours]
        self._kafka: Kafka | None = None
        if options.kafka:
            self._kafka = Kafka(place / "kafka", 1, BROKERS, settings=SETTINGS)
            self._clusters.append(self._kafka)
        self.rows: list[Row] = []

    def compare(self) -> None:
        """Run all cases and fill `rows`."""
        try:
            for cluster in self._clusters:
                cluster.start()
            both = [HINTS, *([KAFKA] if self._kafka else [])]
            for name in () if self._options.quick else both:
                say(f"warming {name}")
                self._one(MOVES, name, 0)
            # All rounds of a case before the next case: restarted brokers are cold again.
            for case in sorted(self._options.cases, key=CASES.index):
                for number in range(1, self._options.rounds + 1):
                    names = [HINTS, *([NO_HINTS] if case == MOVES else []), *both[1:]]
                    # The order rotates, so that no cluster always follows another one's load.
                    for name in names[number % len(names) :] + names[: number % len(names)]:
                        self.rows.append(self._one(case, name, number))
                        say(table(self.rows[-1:]))
        finally:
            for cluster in self._clusters:
                cluster.stop()

    def _one(self, case: str, name: str, number: int) -> Row:
        cluster: Cluster = self._ours
        if name == KAFKA and self._kafka is not None:
            cluster = self._kafka
        else:
            asyncio.run(switch(self._ours, name == HINTS))
        create_topic(cluster, TOPIC, PARTITIONS, BROKERS, {"min.insync.replicas": "2"})
        before = self._counted(cluster, case)
        report, moved, begun_ms = asyncio.run(
            run(cluster, self._clients, case, self._options.rate, self._options.times)
        )
        after = self._counted(cluster, case)
        delete_topics(cluster, TOPIC)
        refused, metadata = (
            (None, None) if after is None or before is None else _between(before, after)
        )
        sends, reads = Times.of(report["sends"]), Times.of(report["reads"])
        return Row(
            case,
            name,
            number,
            moved,
            failed=report["failed"],
            refused=refused,
            metadata=metadata,
            sends=sends,
            reads=reads,
            p999_ms=sends.percentile(0.999),
            max_ms=sends.longest_ms,
            begun_ms=begun_ms,
        )

    def _counted(self, cluster: Cluster, case: str) -> Asked | None:
        if cluster is not self._ours or case in (KILLED, ROLLED):
            return None  # the counters of a starting broker begin at zero
        brokers = filter(is_broker, self._ours.node_pids())
        return asked_of(self._ours.scrape(node_id) for node_id in brokers)


def _between(before: Asked, after: Asked) -> tuple[float, float]:
    return after.refused - before.refused, after.metadata - before.metadata


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too")
    parser.add_argument("--rate", type=int, default=300, help="records per second")
    parser.add_argument("--times", type=int, default=3, help="moves in each run")
    parser.add_argument(
        "--cases",
        type=names_among(CASES),
        default=[MOVES],
        help=f"comma-separated names of {','.join(CASES)}",
    )
    options = options_of(parser, arguments)
    if options.quick:
        options.rounds, options.times, options.rate = 1, 1, 200
    with bench_place(FREE_BYTES_MIN) as place:
        keep_bytecode(place)
        comparison = Comparison(place, options)
        try:
            comparison.compare()
        finally:
            text = table(comparison.rows)
            print(text)
            keep(options, MARK, text, [_plain(row) for row in comparison.rows])


def _plain(row: Row) -> Row:
    """Return a row as JSON values."""
    sends, reads = row.sends._asdict(), row.reads._asdict()
    return row._replace(sends=sends, reads=reads)  # type: ignore[arg-type]


if __name__ == "__main__":
    end_on_sigterm()
    main()
