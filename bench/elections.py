"""Very many elections at once: `python -m bench.elections [--kafka]`.

Ten topics of 1,000 partitions with three replicas, `min.insync.replicas=2`, all led by one broker,
which is killed. How long until every election is decided, committed, and every new leader serves;
then the next leader is killed too: below min ISR, so that it is kept in the ELR of all partitions.
With --kafka Apache Kafka 4.3.1 does the same afterwards. Kraftbox alone then loses all brokers at
once, with the recovery manager on and the strategy Balanced: how long from the last one unfenced
until all partitions are led by who has the longest log, and how much memory that took.

What is observed is what `bench.many_replicas` observes. Prints a Markdown table; `--markdown
docs/benchmarks.md` puts it between the marks there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import Sequence

from bench.clusters import Cluster, Kafka, Kraftbox, is_broker, pss_mb
from bench.many_replicas import (
    CREATE_VERSION,
    FREE_BYTES_MIN,
    METADATA_VERSION,
    REQUEST_MS,
    Figures,
    MetadataLog,
    arguments_of_many,
    connect,
    limit_open_files,
    refusing_to_list,
    until,
    until_each,
    until_served,
)
from bench.nodes import keep_bytecode
from bench.place import bench_place
from bench.report import put_between
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection

LEADER, SECOND, THIRD = 1, 2, 3
BROKERS = (LEADER, SECOND, THIRD)
MARK = "elections"


async def create(connection: Connection, topics: Sequence[str], partitions: int) -> None:
    """Every partition has the same replicas in the same order. RuntimeError for any error."""
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(
            partition_index=index, broker_ids=list(BROKERS)
        )
        for index in range(partitions)
    ]
    for name in topics:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(REQUEST_MS))
        answer = await connection.request(request, REQUEST_MS, CREATE_VERSION)
        if code := answer.topics[0].error_code:
            raise RuntimeError(f"creating {name} failed with {code}")


class Run:
    """One cluster from its start to its stop."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, figures: Figures) -> None:
        self.cluster = cluster
        self.topics = [f"many-{number}" for number in range(options.topics)]
        self.partitions = options.partitions
        self.all = [(topic, n) for topic in self.topics for n in range(self.partitions)]
        self._figures = figures

    def note(self, row: str, value: float) -> None:
        self._figures.note(self.cluster.name, row, value)

    async def measure(self) -> None:
        """Everything, of a cluster that has started."""
        connections = {
            node_id: await connect(self.cluster, node_id)
            for node_id in self.cluster.addresses()
            if is_broker(node_id)
        }
        asked = connections[THIRD]
        await create(connections[LEADER], self.topics, self.partitions)
        await self._until_isr(asked, LEADER, 3)
        self.note("elections", len(self.all))
        await self._lose(connections, LEADER, SECOND, "from the ISR")
        await self._until_isr(asked, SECOND, 2)
        await self._lose(connections, SECOND, THIRD, "to the last in the ISR")
        await self._until_isr(asked, THIRD, 1)
        if isinstance(self.cluster, Kraftbox):
            await self._lose_all(connections)
        for connection in connections.values():
            await connection.close()

    async def _until_isr(self, connection: Connection, leader: int, size: int) -> None:
        await until_each(
            connection,
            self.topics,
            self.partitions,
            lambda one: one.leader_id == leader and len(one.isr_nodes) == size,
            f"an ISR of {size}",
        )

    async def _lose(
        self, connections: dict[int, Connection], victim: int, successor: int, what: str
    ) -> None:
        """Kill who leads everything."""
        log = await MetadataLog.find(self.cluster)
        before, _ = await log.ends()
        begin = time.monotonic()
        self.cluster.kill(victim)
        moved = {successor: self.all}
        fencing = asyncio.ensure_future(log.grown(len(self.all), before, begin))
        serving = asyncio.ensure_future(until_served(connections, moved, refusing_to_list))
        decided, committed = await fencing
        await serving
        served = time.monotonic() - begin
        self.note(f"{what}: from the kill until decided, s", decided)
        self.note(f"{what}: from decided until committed, s", committed - decided)
        self.note(f"{what}: from decided until all serve, s", served - decided)
        await log.close()
        await connections.pop(victim).close()

    async def _lose_all(self, connections: dict[int, Connection]) -> None:
        """All brokers die uncleanly; nobody is sure to have everything."""
        for node_id in (LEADER, SECOND):
            await asyncio.to_thread(self.cluster.restart, node_id)
        await self._until_isr(connections[THIRD], THIRD, len(BROKERS))
        await connections.pop(THIRD).close()
        log = await MetadataLog.find(self.cluster)
        before, _ = await log.ends()
        for node_id in BROKERS:
            self.cluster.kill(node_id)
        await log.grown(len(self.all), before, time.monotonic())
        await log.close()
        controllers = [p for n, p in self.cluster.node_pids().items() if not is_broker(n)]
        memory_mb = max(map(pss_mb, controllers))
        starts = (asyncio.to_thread(self.cluster.restart, node_id) for node_id in BROKERS)
        starting = asyncio.ensure_future(asyncio.gather(*starts))
        asked = await self._connected(LEADER)
        await until(lambda: _knows_all(asked), 0.02, "all brokers unfenced")
        begin = time.monotonic()
        await until_each(
            asked, self.topics, self.partitions, lambda one: one.leader_id >= 0, "a leader"
        )
        self.note("Balanced: from the last broker unfenced until all lead, s", _since(begin))
        self.note(
            "Balanced: the controller's growth, MiB", max(map(pss_mb, controllers)) - memory_mb
        )
        await starting
        await asked.close()

    async def _connected(self, node_id: int) -> Connection:
        """A connection to a broker that is coming up."""
        found: list[Connection] = []

        async def answers() -> bool:
            with contextlib.suppress(OSError):
                found.append(await connect(self.cluster, node_id))
            return bool(found)

        await until(answers, 0.05, f"broker {node_id}")
        return found[0]


async def _knows_all(connection: Connection) -> bool:
    """Whether every broker is unfenced: Metadata names no others."""
    answer = await connection.request(MetadataRequest(topics=[]), REQUEST_MS, METADATA_VERSION)
    return len(answer.brokers) == len(BROKERS)


def _since(begin: float) -> float:
    return time.monotonic() - begin


def run(cluster: Cluster, options: argparse.Namespace, figures: Figures) -> None:
    """Start, measure, stop."""
    try:
        cluster.start()
        asyncio.run(Run(cluster, options, figures).measure())
    finally:
        cluster.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's description."""
    options = arguments_of_many(__doc__).parse_args(arguments)
    if options.quick:
        options.topics, options.partitions = 2, 30
    limit_open_files(options.files)
    figures = Figures()
    with bench_place(FREE_BYTES_MIN) as place:
        keep_bytecode(place)
        try:
            managed = {"unclean.recovery.manager.enabled": "true"}
            ours = Kraftbox(place / "kraftbox", options.controllers, len(BROKERS), settings=managed)
            run(ours, options, figures)
            if options.kafka:
                other = Kafka(place / "kafka", options.controllers, len(BROKERS), heap="1500m")
                run(other, options, figures)
        finally:
            heads = {"kraftbox": "Kraftbox", "kafka": "Kafka 4.3.1"}
            text = figures.table(options.topics * options.partitions, heads)
            print(text)
            if options.json:
                options.json.write_text(json.dumps(figures.rows, indent=1))
    if options.markdown:
        put_between(options.markdown, MARK, text)


if __name__ == "__main__":
    main()
