"""Clusters of Kafka's brokers and ours, and a producer that continues through all faults."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from client.cluster_client import ClusterClient
from protocol.batch.header import iter_batches
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from testkit.audits import Elected, elections_of
from testkit.kafka.in_place import KafkaInPlace
from testkit.processes.listing import listed
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.waiting import until

TOPIC = "both"
OFFSETS = "__consumer_offsets"
PARTITIONS = 2
WAIT_S = 60.0


class Writer:
    """A producer to all partitions in a thread, with a record of acknowledgements."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, count: int = 20) -> None:
        """Wait until every partition has acknowledged `count` more records."""
        goals = [len(done) + count for done in self.acknowledged]

        def reached() -> bool:
            return all(len(d) >= g for d, g in zip(self.acknowledged, goals, strict=True))

        until("further acknowledged records", reached, WAIT_S)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                value = f"{partition}-{number}".encode()
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._told)
            number += 1
            self._producer.poll(0.005)
        left = self._producer.flush(WAIT_S)
        if left:
            self.failed.append(f"{left} without an outcome")

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error.str())
        else:
            self.acknowledged[message.partition()].append(message.value())


class Mixed:
    """A running cluster whose brokers are of both kinds; `replicas` are the ids of three."""

    def __init__(
        self, cluster: ProcessCluster, theirs: dict[int, KafkaInPlace], replicas: tuple[int, ...]
    ) -> None:
        self.cluster = cluster
        self.theirs = theirs
        self.replicas = replicas
        self.bootstrap = cluster.bootstrap
        # A short socket timeout: a paused broker must not delay requests that another one can
        # answer.
        given = {"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 3000}
        self.admin = AdminClient(given)

    def node(self, broker_id: int) -> KafkaInPlace | NodeProcess:
        return self.theirs.get(broker_id, self.cluster.nodes[broker_id])

    def create(self, *assignments: list[int]) -> None:
        topic = NewTopic(
            TOPIC,
            len(assignments),
            replica_assignment=[list(one) for one in assignments],
            config={"min.insync.replicas": "2"},
        )
        self.admin.create_topics([topic])[TOPIC].result(WAIT_S)

    def place_offsets(self, broker_id: int) -> None:
        """Create `__consumer_offsets` on that broker before a client's first request.

        The request would place its only replica anywhere: on a broker whose disks are replaced it
        would be without a leader.
        """
        offsets = NewTopic(
            OFFSETS, 1, replica_assignment=[[broker_id]], config={"cleanup.policy": "compact"}
        )
        self.admin.create_topics([offsets])[OFFSETS].result(WAIT_S)

    def leaders(self) -> list[int]:
        return [leader for leader, _ in self.described()]

    def described(self) -> list[tuple[int, list[int]]]:
        """Return leader and sorted ISR of each partition."""
        found = listed(self.admin, TOPIC).topics[TOPIC].partitions
        return [(found[i].leader, sorted(found[i].isrs)) for i in sorted(found)]

    def wait_for_leaders(self, *leaders: int) -> None:
        until(f"leaders {leaders}", lambda: self.leaders() == list(leaders), WAIT_S)

    def wait_until_whole(self, size: int = 3) -> None:
        until("whole ISRs", lambda: all(len(isr) == size for _, isr in self.described()), WAIT_S)

    def order(self, *replicas: list[int]) -> None:
        """Reorder the replicas: the first becomes the preferred leader."""
        asyncio.run(_reassign(self.bootstrap, replicas))
        wanted = [TopicPartition(TOPIC, index) for index in range(len(replicas))]

        def elected() -> bool:
            told = self.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(WAIT_S)
            assert told is not None
            return self.leaders() == [one[0] for one in replicas]

        until("the preferred leaders", elected, WAIT_S)

    def marks(self) -> list[int]:
        """Return the high watermark of each partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody"})
        try:
            places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places]
        finally:
            consumer.close()

    def read(self) -> list[list[bytes]]:
        """Read every record of each partition below its high watermark."""
        marks = self.marks()
        found: list[list[bytes]] = [[] for _ in marks]
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(len(marks))])

        def everything() -> bool:
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                found[message.partition()].append(message.value())
            return [len(values) for values in found] == marks

        try:
            until("all records", everything, WAIT_S)
        finally:
            consumer.close()
        return found


async def _reassign(bootstrap: str, orders: tuple[list[int], ...]) -> None:
    addresses = [(host, int(port)) for host, port in (b.split(":") for b in bootstrap.split(","))]
    client = await ClusterClient.connect(addresses)
    partitions = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=index, replicas=list(replicas)
        )
        for index, replicas in enumerate(orders)
    ]
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=partitions)
    try:
        answer = await client.request_any(AlterPartitionReassignmentsRequest(topics=[topic]))
    finally:
        await client.close()
    codes = [p.error_code for one in answer.responses for p in one.partitions]
    assert [answer.error_code, *codes] == [0] * (1 + len(orders)), answer


def place_of(node: NodeProcess, partition: int) -> Path:
    """Return the replica's folder in one of the node's log directories."""
    (found,) = node.directory.glob(f"data*/{TOPIC}-{partition}")
    return found


def batches(directory: Path) -> dict[int, bytes]:
    files = sorted(directory.glob("*.log"))
    data = b"".join(path.read_bytes() for path in files)
    return {h.base_offset: data[at : at + h.size_bytes] for h, at in iter_batches(data)}


def check_logs(mixed: Mixed, marks: list[int]) -> None:
    """Assert that all logs are equal byte for byte below the high watermark."""
    for partition, mark in enumerate(marks):
        nodes = [mixed.cluster.nodes[node_id] for node_id in mixed.replicas]
        logs = [batches(place_of(node, partition)) for node in nodes]
        assert len(logs) == 3 and len(logs[0]) > 10
        below = [{base: log[base] for base in log if base < mark} for log in logs]
        assert below[0] == below[1] == below[2], f"the logs of partition {partition} differ"
        assert max(below[0]) < mark


def first_difference(there: list[bytes], sent: list[bytes]) -> str:
    """Describe the first difference of two lists of values, and all missing and additional
    values."""
    at = next(
        (i for i, (one, other) in enumerate(zip(there, sent, strict=False)) if one != other),
        min(len(there), len(sent)),
    )
    missing, extra = Counter(sent) - Counter(there), Counter(there) - Counter(sent)
    return (
        f"{len(there)} records for {len(sent)} acknowledged, other from {at} on: "
        f"{there[max(0, at - 3) : at + 5]} for {sent[max(0, at - 3) : at + 5]}; "
        f"missing {sorted(missing)[:20]} of {missing.total()}, "
        f"too many {sorted(extra)[:20]} of {extra.total()}"
    )


def check_records(writer: Writer, found: list[list[bytes]]) -> None:
    """Assert that each acknowledged record is there once, in the order of sending.

    Acknowledgements may come in another order after a leader change: the client has a thread for
    each broker.
    """
    assert writer.failed == []
    for partition, (there, told) in enumerate(zip(found, writer.acknowledged, strict=True)):
        sent = sorted(told, key=lambda value: int(value.partition(b"-")[2]))
        assert there == sent, f"partition {partition}: {first_difference(there, sent)}"


def audited(mixed: Mixed) -> list[Elected]:
    """Return the topic's elections by an audit of the controllers' logs, which breaks no
    promise."""
    places = [node.metadata_dir for node in mixed.cluster.controllers]
    return [e for e in elections_of(*places) if e.topic == TOPIC]


@contextlib.contextmanager
def running(
    cluster: ProcessCluster, theirs: dict[int, KafkaInPlace], replicas: tuple[int, ...]
) -> Iterator[Mixed]:
    """Format and start all nodes, each JVM while the others come up."""
    ours = [node for node in cluster.nodes.values() if node.id not in theirs]
    try:
        cluster.format()
        for kafka in theirs.values():
            kafka.complete_format()
            kafka.begin()
        for node in ours:
            node.start()
        for kafka in theirs.values():
            kafka.wait_until_ready()
        for node in ours:
            if not node.is_controller:
                until("a broker of ours", lambda n=node: "to RUNNING" in n.log_text)  # type: ignore[misc]
        yield Mixed(cluster, theirs, replicas)
    finally:
        for kafka in theirs.values():
            kafka.kill()
