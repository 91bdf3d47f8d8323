"""Shared parts of benchmarks with very many replicated partitions: figures, clusters, observations.

The observations cost the cluster little:

- Decided and committed: fencing a broker that is in every ISR takes one record per partition. A
  DescribeQuorum request to the active controller every few milliseconds shows when the end of the
  metadata log (decided) and its high watermark (committed) have advanced by that number.
- Serving: end offsets are requested from the new leaders, in pieces, and again while a partition
  refuses.
- Acknowledging: one record with acks=all to each partition.
- Leaders and ISRs in one broker's Metadata, one topic after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from bench.blast import record_batch
from bench.clusters import Cluster, Kafka, Kraftbox, is_broker
from bench.nodes import keep_bytecode
from bench.place import bench_place
from bench.report import put_between, shown
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest
from protocol.transport.client import Connection
from testkit.kafka.jars import ORACLE

BROKERS = 3
PIECE = 250
"""Partitions in one request of a probe."""
LATEST = -1
CREATE_VERSION = 7
PRODUCE_VERSION = 11
LIST_OFFSETS_VERSION = 7
METADATA_VERSION = 12
REQUEST_MS = 60_000.0
STEP_S_MAX = 300.0
REST_S = 2.0
RESTS = 2
"""Required consecutive times at rest: on a busy machine a working process may get no processor
for a while.
"""
POLL_S = 0.005
FREE_BYTES_MIN = 4 << 30
HEADS = {"kraftbox": "Kraftbox", "kafka": f"Kafka {ORACLE}"}

Moved = dict[int, list[tuple[str, int]]]
"""Partitions by the broker that is to lead them."""


class Figures:
    """Rows by measurement, each with a value per cluster."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}

    def note(self, cluster: str, row: str, value: float) -> None:
        """Record a figure and print it. Of several rounds the smallest counts.

        A busy machine can only add to a figure.
        """
        values = self.rows.setdefault(row, {})
        values[cluster] = min(value, values.get(cluster, value))
        print(f"{cluster}: {row}: {shown(value)}", flush=True)

    def note_difference(self, cluster: str, row: str, of: str, less: str) -> None:
        """Record the difference of the figures of two rows, over all rounds so far."""
        value = self.rows[of][cluster] - self.rows[less][cluster]
        self.rows.setdefault(row, {})[cluster] = value
        print(f"{cluster}: {row}: {shown(value)}", flush=True)

    def table(self, partitions: int) -> str:
        """Return the table as Markdown, with a column per cluster that has figures."""
        columns = [name for name in HEADS if any(name in row for row in self.rows.values())]
        lines = [
            f"| {partitions:,} partitions | {' | '.join(HEADS[name] for name in columns)} |",
            f"|---|{'---|' * len(columns)}",
        ]
        for row, values in self.rows.items():
            cells = [shown(values[name]) if name in values else "-" for name in columns]
            lines.append(f"| {row} | {' | '.join(cells)} |")
        return "\n".join(lines)


async def until(condition: Callable[[], Awaitable[bool]], pause_s: float, what: str) -> None:
    """Poll `condition` every `pause_s`. Raises TimeoutError if it is not true within STEP_S_MAX."""
    deadline = time.monotonic() + STEP_S_MAX
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not finished within {STEP_S_MAX:.0f} s")
        await asyncio.sleep(pause_s)


async def connect(cluster: Cluster, node_id: int) -> Connection:
    """Open a client's connection to one node."""
    return await Connection.connect(*cluster.addresses()[node_id], client_id="bench")


async def create_topics(
    connection: Connection,
    topics: Sequence[str],
    partitions: int,
    replicas: Sequence[int] | None = None,
) -> None:
    """Create topics, one request each. Raises RuntimeError for any error.

    Every partition has the `replicas` in this order, or those that the controller assigns.
    """
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(
            partition_index=index, broker_ids=list(replicas or ())
        )
        for index in range(partitions if replicas else 0)
    ]
    for name in topics:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else BROKERS,
            assignments=assignments,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(REQUEST_MS))
        answer = await connection.request(request, REQUEST_MS, CREATE_VERSION)
        if code := answer.topics[0].error_code:
            raise RuntimeError(f"creating {name} failed with {code}")


async def described(
    connection: Connection, topic: str
) -> list[MetadataResponse.MetadataResponsePartition]:
    """Return a topic's partitions in this broker's metadata; none if it does not know the topic."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    answer = await connection.request(request, REQUEST_MS, METADATA_VERSION)
    return list(answer.topics[0].partitions)


async def until_each(
    connection: Connection,
    topics: Sequence[str],
    partitions: int,
    holds: Callable[[MetadataResponse.MetadataResponsePartition], bool],
    what: str,
) -> None:
    """Wait until `holds` is true for every partition of every topic."""
    for topic in topics:

        async def whole(topic: str = topic) -> bool:
            found = await described(connection, topic)
            return len(found) == partitions and all(map(holds, found))

        await until(whole, 0.05, f"{topic}: {what}")


def by_topic(piece: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """Return partition indexes by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in piece:
        found.setdefault(topic, []).append(index)
    return found


async def refusing_to_list(
    connection: Connection, piece: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return the partitions whose end offset this broker refuses to return."""
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(piece).items()
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = await connection.request(request, REQUEST_MS, LIST_OFFSETS_VERSION)
    return [
        (topic.name, one.partition_index)
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code
    ]


async def refusing_to_append(
    connection: Connection, piece: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return the partitions that do not acknowledge a record with acks=all."""
    batch = record_batch(170)
    topics = [
        ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=batch) for index in indexes
            ],
        )
        for topic, indexes in by_topic(piece).items()
    ]
    request = ProduceRequest(acks=-1, timeout_ms=int(REQUEST_MS), topic_data=topics)
    answer = await connection.request(request, REQUEST_MS, PRODUCE_VERSION)
    return [
        (topic.name, one.index)
        for topic in answer.responses
        for one in topic.partition_responses
        if one.error_code
    ]


Probe = Callable[[Connection, Sequence[tuple[str, int]]], Awaitable[list[tuple[str, int]]]]


async def until_served(connections: dict[int, Connection], moved: Moved, probe: Probe) -> None:
    """Wait until no partition refuses any more, at the brokers that are to lead them."""

    async def at_one(node_id: int, waiting: list[tuple[str, int]]) -> None:
        # One partition alone first: until the fencing, further requests would only cost the
        # brokers.
        for start, end in [(0, 1), *((at, at + PIECE) for at in range(1, len(waiting), PIECE))]:
            left = waiting[start:end]

            async def served() -> bool:
                nonlocal left
                left = await probe(connections[node_id], left)
                return not left

            await until(served, 0.02, f"service by broker {node_id}")

    await asyncio.gather(*(at_one(node_id, waiting) for node_id, waiting in moved.items()))


class MetadataLog:
    """The end of the metadata log, as the active controller reports it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def find(cls, cluster: Cluster) -> MetadataLog:
        """Find the active controller, the only one that answers.

        Raises RuntimeError without one.
        """
        for node_id in cluster.addresses():
            if not is_broker(node_id):
                found = cls(await connect(cluster, node_id))
                try:
                    await found.ends()
                except ApiError:
                    await found.close()
                    continue
                return found
        raise RuntimeError("no controller is active")

    async def close(self) -> None:
        await self._connection.close()

    async def ends(self) -> tuple[int, int]:
        """Return log end offset and high watermark. Raises ApiError."""
        topic = DescribeQuorumRequest.TopicData(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
        )
        answer = await self._connection.request(DescribeQuorumRequest(topics=[topic]), REQUEST_MS)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code), answer.error_message)
        one = answer.topics[0].partitions[0]
        if one.error_code:
            raise ApiError(ErrorCode(one.error_code), one.error_message)
        return max(voter.log_end_offset for voter in one.current_voters), one.high_watermark

    async def grown(self, by: int, before: int, since: float) -> tuple[float, float]:
        """Return the seconds after `since` until log end and high watermark have advanced by
        `by`.
        """
        decided = 0.0

        async def committed() -> bool:
            nonlocal decided
            end, high_watermark = await self.ends()
            if end >= before + by and not decided:
                decided = time.monotonic() - since
            return high_watermark >= before + by

        await until(committed, POLL_S, "the fencing")
        return decided, time.monotonic() - since


async def until_rest(cluster: Cluster) -> float:
    """Wait until the brokers have finished their remaining work; return the seconds."""
    begin = time.monotonic()
    times = 0

    async def rests() -> bool:
        nonlocal times
        before = cluster.cpu_s()
        await asyncio.sleep(REST_S)
        times = times + 1 if cluster.cpu_s() - before < cluster.rest_cores * REST_S else 0
        return times == RESTS

    await until(rests, 0.0, "rest")
    return time.monotonic() - begin - RESTS * REST_S


class Run(ABC):
    """One cluster of three brokers from its start to its stop.

    `is_last` marks the last round, for measurements that would disturb all other figures.
    """

    is_last = True

    def __init__(self, cluster: Cluster, options: argparse.Namespace, figures: Figures) -> None:
        self.cluster = cluster
        self.options = options
        self.topics = [f"many-{number}" for number in range(options.topics)]
        self._figures = figures

    def note(self, row: str, value: float) -> None:
        self._figures.note(self.cluster.name, row, value)

    @abstractmethod
    async def measure(self, connections: dict[int, Connection]) -> None:
        """Measure everything on a started cluster; `connections` are to its brokers."""

    def run(self) -> None:
        """Start the cluster, measure, stop it."""
        try:
            self.note("start to ready, s", self.cluster.start())
            asyncio.run(self._connected())
        finally:
            self.cluster.stop()

    async def _connected(self) -> None:
        connections = {
            node_id: await connect(self.cluster, node_id)
            for node_id in self.cluster.addresses()
            if is_broker(node_id)
        }
        await self.measure(connections)
        for connection in connections.values():
            await connection.close()

    async def kill(
        self, connections: dict[int, Connection], victim: int, moved: Moved
    ) -> tuple[float, float, float, float]:
        """Kill a broker that is in every ISR.

        Returns: the monotonic time of the kill, and the seconds from it until all changes are
        decided, until they are committed, and until all of `moved` serve.
        """
        log = await MetadataLog.find(self.cluster)
        before, _ = await log.ends()
        changes = self.options.topics * self.options.partitions
        begin = time.monotonic()
        self.cluster.kill(victim)
        fencing = asyncio.ensure_future(log.grown(changes, before, begin))
        serving = asyncio.ensure_future(until_served(connections, moved, refusing_to_list))
        decided, committed = await fencing
        await serving
        served = time.monotonic() - begin
        await log.close()
        await connections.pop(victim).close()
        return begin, decided, committed, served

    async def until_each(
        self,
        connection: Connection,
        holds: Callable[[MetadataResponse.MetadataResponsePartition], bool],
        what: str,
    ) -> None:
        """Wait until `holds` is true for every partition in this broker's metadata."""
        await until_each(connection, self.topics, self.options.partitions, holds, what)


def compare(
    runs: Callable[[Cluster, argparse.Namespace, Figures], Run],
    options: argparse.Namespace,
    mark: str,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run the rounds on Kraftbox with `settings`, then on Kafka if requested.

    Prints the table, and writes it between the marks of this name.
    """
    limit_open_files(options.files)
    figures = Figures()
    with bench_place(FREE_BYTES_MIN) as place:
        keep_bytecode(place)
        try:
            for number in range(options.rounds):
                nodes = options.controllers, BROKERS
                ours = Kraftbox(place / f"kraftbox-{number}", *nodes, settings=settings)
                run = runs(ours, options, figures)
                run.is_last = number == options.rounds - 1
                run.run()
                if options.kafka:
                    other = Kafka(place / f"kafka-{number}", *nodes, heap="1500m")
                    runs(other, options, figures).run()
        finally:
            text = figures.table(options.topics * options.partitions)
            print(text)
            if options.json:
                options.json.write_text(json.dumps(figures.rows, indent=1))
    if options.markdown:
        put_between(options.markdown, mark, text)


def limit_open_files(files_max: int) -> None:
    """Limit the open files of every process started from here on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files_max if hard == resource.RLIM_INFINITY else min(files_max, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def arguments(description: str | None, given: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed options of a benchmark with many partitions."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1_000, help="partitions of each topic")
    parser.add_argument("--controllers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="rounds; the smallest figure counts")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the idle phases")
    parser.add_argument(
        "--files", type=int, default=20_000, help="limit of open files of a process"
    )
    parser.add_argument("--kafka", action="store_true", help="also measure Apache Kafka")
    parser.add_argument("--quick", action="store_true", help="run every step once, without figures")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--markdown", type=Path, help="write the table between the marks of this file"
    )
    options = parser.parse_args(given)
    if options.quick:
        options.topics, options.partitions, options.idle = 2, 30, 2.0
    return options
