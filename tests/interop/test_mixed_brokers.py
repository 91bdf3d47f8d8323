"""Apache Kafka's brokers and ours hold the replicas of one topic, under our controllers or Kafka's.

An idempotent producer with acks=all goes on all the time; at the end every acknowledged record is
there once and in order, and the replicas' logs are byte for byte the same up to the high watermark.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from client.cluster_client import ClusterClient
from protocol.batch.header import iter_batches
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.transport.client import Connection
from testkit.audits import Elected, elections_of
from testkit.kafka.in_place import KafkaInPlace
from testkit.kafka.jars import kafka_libs
from testkit.processes.quorum_cluster import NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

TOPIC = "both"
PARTITIONS = 2
WAIT_S = 60.0


class Writer:
    """Produces to all partitions from a thread; knows what was acknowledged."""

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
        """Every partition must take so many more."""
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
        # A broker that stands still holds up nobody who may ask another one.
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

    def leaders(self) -> list[int]:
        return [leader for leader, _ in self.described()]

    def described(self) -> list[tuple[int, list[int]]]:
        """Leader and sorted ISR of each partition."""
        found = self.admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions
        return [(found[i].leader, sorted(found[i].isrs)) for i in sorted(found)]

    def wait_for_leaders(self, *leaders: int) -> None:
        until(f"leaders {leaders}", lambda: self.leaders() == list(leaders), WAIT_S)

    def wait_until_whole(self, size: int = 3) -> None:
        until("whole ISRs", lambda: all(len(isr) == size for _, isr in self.described()), WAIT_S)

    def order(self, *replicas: list[int]) -> None:
        """The same replicas in another order: the first is to lead."""
        asyncio.run(_reassign(self.bootstrap, replicas))
        wanted = [TopicPartition(TOPIC, index) for index in range(len(replicas))]

        def elected() -> bool:
            told = self.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(WAIT_S)
            assert told is not None
            return self.leaders() == [one[0] for one in replicas]

        until("the preferred leaders", elected, WAIT_S)

    def marks(self) -> list[int]:
        """The high watermark of each partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody"})
        try:
            places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places]
        finally:
            consumer.close()

    def read(self) -> list[list[bytes]]:
        """Every record of each partition below its high watermark."""
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
    """Where the node has a replica: in one of its log directories."""
    (found,) = node.directory.glob(f"data*/{TOPIC}-{partition}")
    return found


def batches(directory: Path) -> dict[int, bytes]:
    files = sorted(directory.glob("*.log"))
    data = b"".join(path.read_bytes() for path in files)
    return {h.base_offset: data[at : at + h.size_bytes] for h, at in iter_batches(data)}


def check_logs(mixed: Mixed, marks: list[int]) -> None:
    """What is below the high watermark is the same everywhere, to the byte."""
    for partition, mark in enumerate(marks):
        nodes = [mixed.cluster.nodes[node_id] for node_id in mixed.replicas]
        logs = [batches(place_of(node, partition)) for node in nodes]
        assert len(logs) == 3 and len(logs[0]) > 10
        below = [{base: log[base] for base in log if base < mark} for log in logs]
        assert below[0] == below[1] == below[2], f"the logs of partition {partition} differ"
        assert max(below[0]) < mark


def check_records(writer: Writer, found: list[list[bytes]]) -> None:
    """What was acknowledged is there once, in the order it was sent."""
    assert writer.failed == []
    assert found == writer.acknowledged


def story(mixed: Mixed, ours: int, theirs: int, third: int) -> None:
    """Leaders on either side, moved both ways, killed on either side."""
    mixed.create([ours, theirs, third], [theirs, ours, third])
    with Writer(mixed.bootstrap) as writer:
        mixed.wait_for_leaders(ours, theirs)
        writer.wait_for_more()
        mixed.order([theirs, ours, third], [ours, theirs, third])
        writer.wait_for_more()
        mixed.order([ours, theirs, third], [theirs, ours, third])
        writer.wait_for_more()
        for broker_id, leaders in ((ours, [theirs] * 2), (theirs, [ours] * 2)):
            mixed.wait_until_whole()
            mixed.order([ours, theirs, third], [theirs, ours, third])
            mixed.node(broker_id).kill()
            mixed.wait_for_leaders(*leaders)
            writer.wait_for_more()
            mixed.node(broker_id).start()
        mixed.wait_until_whole()
        writer.wait_for_more()
    check_records(writer, mixed.read())
    check_logs(mixed, mixed.marks())


def shut_down_in_good_order(mixed: Mixed, broker_id: int, successor: int) -> None:
    """Its leaderships are gone before it is, though no heartbeat was missed."""
    mixed.node(broker_id).stop()
    mixed.wait_for_leaders(*[successor] * PARTITIONS)


def lose_a_directory(mixed: Mixed, broker_id: int, successor: int) -> None:
    """A broker of Kafka's that leads both partitions, each in a directory of its own."""
    mixed.order([broker_id, successor, 5], [broker_id, successor, 5])
    node = mixed.cluster.nodes[broker_id]
    places = [place_of(node, index).parent for index in range(PARTITIONS)]
    # The first also holds the metadata log: without that one a broker stops.
    lost = places.index(node.data.with_name("data2"))
    assert places[1 - lost] == node.data
    places[lost].rename(node.directory / "gone")
    mixed.wait_for_leaders(*(successor if i == lost else broker_id for i in range(PARTITIONS)))
    assert [broker_id in isr for _, isr in mixed.described()] == [lost == 1, lost == 0]


def eligible(mixed: Mixed) -> list[tuple[list[int], list[int]]]:
    """Sorted ELR and LastKnownELR of each partition; every live broker must say the same."""
    told = [asyncio.run(_describe(address)) for address in mixed.bootstrap.split(",")]
    found = [one for one in told if one is not None]
    assert found and all(one == found[0] for one in found), found
    return found[0]


async def _describe(address: str) -> list[tuple[list[int], list[int]]] | None:
    host, port = address.split(":")
    try:
        connection = await Connection.connect(host, int(port), "test", 2000)
    except OSError:
        return None
    try:
        topic = DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)
        answer = await connection.request(DescribeTopicPartitionsRequest(topics=[topic]), 5000)
    finally:
        await connection.close()
    return [
        (sorted(p.eligible_leader_replicas or ()), sorted(p.last_known_elr or ()))
        for p in answer.topics[0].partitions
    ]


def eligible_replicas(mixed: Mixed, ours: int, theirs: int, third: int) -> None:
    """Cleanly stopped brokers of either kind are in the ELR and lead again; a killed one does not.

    The last one in sync is killed and comes back first.
    """
    for stopped, killed in ((theirs, ours), (ours, theirs)):
        mixed.wait_until_whole()
        before = mixed.read()
        mixed.order(*[[killed, stopped, third]] * PARTITIONS)
        mixed.node(third).stop()
        mixed.node(stopped).stop()
        alone = [(killed, [killed])] * PARTITIONS
        until("the last in-sync replica", lambda a=alone: mixed.described() == a, WAIT_S)  # type: ignore[misc]
        assert eligible(mixed) == [([stopped], [])] * PARTITIONS
        mixed.node(killed).kill()
        mixed.node(killed).start()
        nobody = [(-1, [])] * PARTITIONS
        until("nobody leads", lambda n=nobody: mixed.described() == n, WAIT_S)  # type: ignore[misc]
        until(
            "the crash is known",
            lambda s=stopped, k=killed: eligible(mixed) == [([s], [k])] * PARTITIONS,  # type: ignore[misc]
            WAIT_S,
        )
        mixed.node(stopped).start()
        mixed.wait_for_leaders(*[stopped] * PARTITIONS)
        mixed.node(third).start()
        mixed.wait_until_whole()
        assert eligible(mixed) == [([], [])] * PARTITIONS
        assert mixed.read() == before


def eligible_after_a_standstill(mixed: Mixed, ours: int, theirs: int, third: int) -> None:
    """Our broker is in the ELR because it stood still, not because it stopped: it registers no
    more, and leads as soon as it is heard of again. Kafka's leader was killed meanwhile."""
    mixed.wait_until_whole()
    before = mixed.read()
    mixed.order(*[[theirs, ours, third]] * PARTITIONS)
    mixed.node(third).stop()
    ourselves = mixed.cluster.nodes[ours]
    ourselves.pause()
    alone = [(theirs, [theirs])] * PARTITIONS
    until("the last in-sync replica", lambda: mixed.described() == alone, WAIT_S)
    mixed.node(theirs).kill()
    ourselves.resume()
    mixed.wait_for_leaders(*[ours] * PARTITIONS)
    assert mixed.described() == [(ours, [ours])] * PARTITIONS
    mixed.node(theirs).start()
    mixed.node(third).start()
    mixed.wait_until_whole()
    assert mixed.read() == before


def audited(mixed: Mixed) -> list[Elected]:
    """The topic's elections, by the logs of the controllers: no promise is broken."""
    places = [node.metadata_dir for node in mixed.cluster.controllers]
    return [e for e in elections_of(*places) if e.topic == TOPIC]


def come_back_empty(mixed: Mixed, broker_id: int, others: tuple[int, int]) -> int:
    """F22: all disks of a broker of Kafka's are replaced; one partition, which is returned, has
    nobody else in sync. The others were killed, too: in the other partition the last leader leads.

    Kafka's broker says where its new replicas are, and is not believed where that would make an
    empty one the complete one.
    """
    (alone,) = (i for i, (leader, _) in enumerate(mixed.described()) if leader == broker_id)
    before = mixed.read()
    for other in others:
        mixed.node(other).kill()
    last = (broker_id, [broker_id])
    until("the last in-sync replica", lambda: mixed.described()[alone] == last, WAIT_S)
    mixed.node(broker_id).kill()
    mixed.theirs[broker_id].replace_disks()
    for node in map(mixed.node, (*others, broker_id)):
        node.start()
    until("its other replica in the ISR", lambda: _is_whole(mixed, 1 - alone), WAIT_S)
    # On another disk it is not eligible any more; who was not in sync never was.
    assert mixed.described()[alone] == (-1, [])
    wanted = [TopicPartition(TOPIC, alone)]
    mixed.admin.elect_leaders(ElectionType.UNCLEAN, wanted).result(WAIT_S)
    mixed.wait_until_whole()
    assert mixed.leaders()[alone] in others
    assert mixed.read() == before
    return alone


def _is_whole(mixed: Mixed, partition: int) -> bool:
    leader, isr = mixed.described()[partition]
    return leader >= 0 and len(isr) == len(mixed.replicas)


@contextlib.contextmanager
def running(
    cluster: ProcessCluster, theirs: dict[int, KafkaInPlace], replicas: tuple[int, ...]
) -> Iterator[Mixed]:
    """Everything formatted by us and started, each JVM while the others come up."""
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


SETTINGS = {"offsets.topic.num.partitions": "1"}


def test_kafkas_broker_under_our_controllers(tmp_path: Path) -> None:
    """Controllers 1-3 and brokers 4 and 5 are ours, broker 6 is Kafka's and has two directories.

    It tells with AssignReplicasToDirs which replica is in which, and when one fails. At last both
    are replaced.
    """
    settings = {**SETTINGS, "kraftbox.broker.connection.loss.fence.ms": "200"}
    with ProcessCluster(tmp_path, brokers=3, settings=settings) as cluster:
        place = cluster.nodes[6]
        second = {
            "log.dirs": f"{place.data},{place.data}2",
            "replica.high.watermark.checkpoint.interval.ms": "500",
        }
        theirs = {6: KafkaInPlace(place, second)}
        with running(cluster, theirs, (4, 5, 6)) as mixed:
            story(mixed, 4, 6, 5)
            lose_a_directory(mixed, 6, 4)
            alone = come_back_empty(mixed, 6, (5, 4))
            eligible_replicas(mixed, 4, 6, 5)
            shut_down_in_good_order(mixed, 6, 4)
            told = audited(mixed)
    lossy = [(e.partition, e.kind) for e in told if e.is_lossy]
    assert sorted(lossy) == sorted([(alone, "unclean"), (1 - alone, "last-known-leader")])
    assert {e.to_leader for e in told if e.kind == "elr"} >= {4, 6}


@pytest.mark.rest
def test_our_brokers_under_kafkas_controller(tmp_path: Path) -> None:
    """The controller and broker 2 are Kafka's, 3 and 4 are ours.

    Kafka's controller elects ours from the ELR, and takes it out of it after a crash: what ours
    says of its last shutdown is true.
    """
    with ProcessCluster(tmp_path, controllers=1, brokers=3, settings=SETTINGS) as cluster:
        theirs = {n: KafkaInPlace(cluster.nodes[n]) for n in (1, 2)}
        with running(cluster, theirs, (2, 3, 4)) as mixed:
            story(mixed, 3, 2, 4)
            eligible_replicas(mixed, 3, 2, 4)
            eligible_after_a_standstill(mixed, 3, 2, 4)
            shut_down_in_good_order(mixed, 2, 3)
            told = audited(mixed)
    assert [e for e in told if e.is_lossy] == []
    eligible_ones = Counter(e.to_leader for e in told if e.kind == "elr")
    assert eligible_ones == {2: PARTITIONS, 3: 2 * PARTITIONS}
