"""What benchmarks of very many replicated partitions share: figures, clusters, observations.

What is observed, in a way that costs the cluster little:

- Decided and committed: a broker in every ISR that is fenced takes one record for each partition.
  DescribeQuorum, asked of the active controller every few milliseconds, tells when the end of the
  metadata log (decided) and its high watermark (committed) have gone so far.
- Serving: brokers are asked for the end offsets of what they are to lead, in pieces, again while
  one partition refuses.
- Acknowledging: one record with acks=all to each partition.
- Leaders and ISRs as one broker's Metadata has them, one topic after the other.
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
"""So many times in a row: on a busy machine who works may have no processor for a while."""
POLL_S = 0.005
FREE_BYTES_MIN = 4 << 30
HEADS = {"kraftbox": "Kraftbox", "kafka": "Kafka 4.3.1"}

Moved = dict[int, list[tuple[str, int]]]
"""Partitions by the broker that is to lead them."""


class Figures:
    """Rows by what was measured, each with a value per cluster."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}

    def note(self, cluster: str, row: str, value: float) -> None:
        """Of several rounds the least counts: a busy machine only ever adds. Progress goes to
        standard output as well."""
        values = self.rows.setdefault(row, {})
        values[cluster] = min(value, values.get(cluster, value))
        print(f"{cluster}: {row}: {shown(value)}", flush=True)

    def note_difference(self, cluster: str, row: str, of: str, less: str) -> None:
        """By how much the figure of one row is above that of another, of all rounds so far."""
        value = self.rows[of][cluster] - self.rows[less][cluster]
        self.rows.setdefault(row, {})[cluster] = value
        print(f"{cluster}: {row}: {shown(value)}", flush=True)

    def table(self, partitions: int) -> str:
        """As Markdown, with the columns that there are figures for."""
        columns = [name for name in HEADS if any(name in row for row in self.rows.values())]
        lines = [
            f"| {partitions:,} partitions | {' | '.join(HEADS[name] for name in columns)} |",
            f"|---|{'---|' * len(columns)}",
        ]
        for row, values in self.rows.items():
            told = [shown(values[name]) if name in values else "-" for name in columns]
            lines.append(f"| {row} | {' | '.join(told)} |")
        return "\n".join(lines)


async def until(condition: Callable[[], Awaitable[bool]], pause_s: float, what: str) -> None:
    """TimeoutError when it does not come true within STEP_S_MAX."""
    deadline = time.monotonic() + STEP_S_MAX
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {STEP_S_MAX:.0f} s")
        await asyncio.sleep(pause_s)


async def connect(cluster: Cluster, node_id: int) -> Connection:
    """A client's connection to one node."""
    return await Connection.connect(*cluster.addresses()[node_id], client_id="bench")


async def create_topics(
    connection: Connection,
    topics: Sequence[str],
    partitions: int,
    replicas: Sequence[int] | None = None,
) -> None:
    """One request each, every partition on the same `replicas` in this order or where the
    controller puts them. Raises RuntimeError for any error."""
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
    """A topic's partitions in this broker's eyes; none while it does not know the topic."""
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
    """Until every partition of every topic is as it should be."""
    for topic in topics:

        async def whole(topic: str = topic) -> bool:
            found = await described(connection, topic)
            return len(found) == partitions and all(map(holds, found))

        await until(whole, 0.05, f"{topic}: {what}")


def by_topic(piece: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """Indexes by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in piece:
        found.setdefault(topic, []).append(index)
    return found


async def refusing_to_list(
    connection: Connection, piece: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Those of the piece whose end offset this broker does not tell."""
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
    """Those of the piece that do not acknowledge a record with acks=all."""
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
    """Until no partition refuses any more, at the brokers that are to lead them."""

    async def at_one(node_id: int, waiting: list[tuple[str, int]]) -> None:
        # One alone at first: until it is fenced, what is asked costs the brokers for nothing.
        for start, end in [(0, 1), *((at, at + PIECE) for at in range(1, len(waiting), PIECE))]:
            left = waiting[start:end]

            async def served() -> bool:
                nonlocal left
                left = await probe(connections[node_id], left)
                return not left

            await until(served, 0.02, f"service by broker {node_id}")

    await asyncio.gather(*(at_one(node_id, waiting) for node_id, waiting in moved.items()))


class MetadataLog:
    """The end of the metadata log as the active controller tells it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def find(cls, cluster: Cluster) -> MetadataLog:
        """Ask each controller; only the active one answers. RuntimeError if none does."""
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
        """Log end offset and high watermark. Raises ApiError."""
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
        """Seconds since then until the log's end and its high watermark are so much further."""
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
    """Seconds until the brokers have done what they were left with."""
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
    """One cluster of three brokers from its start to its stop. `is_last` of its rounds: what would
    disturb the figures of all others belongs there."""

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
        """Everything, of a cluster that has started; `connections` are to its brokers."""

    def run(self) -> None:
        """Start, measure, stop."""
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
        """Kill a broker that is in every ISR. When that was (monotonic), and the seconds from then
        until all changes are decided, are committed, and until all of `moved` serve."""
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
        """Until every partition is as it should be, in this broker's eyes."""
        await until_each(connection, self.topics, self.options.partitions, holds, what)


def compare(
    runs: Callable[[Cluster, argparse.Namespace, Figures], Run],
    options: argparse.Namespace,
    mark: str,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Ours with `settings`, then Kafka's where that is asked for, as many rounds as are asked for;
    the table is printed, and put between the marks of this name."""
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
    """For every process that is started from here on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files_max if hard == resource.RLIM_INFINITY else min(files_max, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def arguments(description: str | None, given: Sequence[str] | None) -> argparse.Namespace:
    """What a benchmark of many partitions was told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1_000, help="of each topic")
    parser.add_argument("--controllers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="of which the least figure counts")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the idle phases")
    parser.add_argument("--files", type=int, default=20_000, help="open files of a process")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka as well")
    parser.add_argument("--quick", action="store_true", help="a try of every step, no figures")
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument("--markdown", type=Path, help="put the table between the marks in there")
    options = parser.parse_args(given)
    if options.quick:
        options.topics, options.partitions, options.idle = 2, 30, 2.0
    return options
