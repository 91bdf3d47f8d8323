"""Three brokers as processes: after the kill of a leader no acknowledged record is lost."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from audit.job import run_here
from audit.reading.inputs import read_inputs
from testkit.processes.listing import listed
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.quorum_cluster import ProcessCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

WAIT_S = 30
PARTITIONS = 3
RECORDS, LAST_RECORDS = 3000, 300
VALUE_BYTES = 600
"""A size at which each log rolls with the second part of the records, and not with the last.

Checkpoints that are written at a roll are then behind.
"""
SEGMENT_BYTES = 1 << 20

Acked = list[tuple[int, int, bytes]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KraftboxCluster]:
    made = KraftboxCluster(
        tmp_path / "cluster",
        *("--port", "0", "--controllers", "1", "--brokers", "3"),
        *("--set", "broker.session.timeout.ms=2000"),
        *("--set", "broker.heartbeat.interval.ms=400"),
        *("--set", "min.insync.replicas=2"),
        *("--set", "replica.high.watermark.checkpoint.interval.ms=100"),
    )
    yield made
    made.end(signal.SIGKILL)


def produce(producer: Producer, tag: bytes, acked: Acked, records: int = RECORDS) -> None:
    def told(error: object, message: object) -> None:
        assert error is None, error
        acked.append((message.partition(), message.offset(), message.value()))  # type: ignore[attr-defined]

    before = len(acked)
    for number in range(records):
        producer.produce(
            "t",
            (tag + str(number).encode()).ljust(VALUE_BYTES),
            partition=number % PARTITIONS,
            on_delivery=told,
        )
    producer.flush(WAIT_S)
    assert len(acked) == before + records


def consumed(bootstrap: str, count: int) -> Acked:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: Acked = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return found


def segments(directory: Path, node_id: int) -> dict[str, str]:
    """Return a digest of each partition's segments on one broker."""
    return {
        f"{path.parent.name}/{path.name}": hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted((directory / f"node-{node_id}" / "data").glob("t-*/*.log"))
    }


def copied(directory: Path, to: Path) -> Path:
    """Copy the nodes' data while they write, file after file, without files that disappear."""

    def copy(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)

    for data in sorted(directory.glob("node-*/data")):
        shutil.copytree(data, to / data.parent.name / "data", copy_function=copy)
    return to


def broken_promises(directory: Path) -> list[str]:
    found = run_here(read_inputs([directory]))
    assert len(found.data["data"]) >= PARTITIONS
    return [f"{f['check']}: {f['message']}" for f in found.findings if f["severity"] == "error"]


def test_a_killed_leader_costs_no_acknowledged_record(
    cluster: KraftboxCluster, tmp_path: Path
) -> None:
    """F1 in short (P1, P6): the killed broker returns to every ISR with equal logs.

    The audit of the nodes' files during writes finds no broken promise.
    """
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("t", PARTITIONS, 3, config={"segment.bytes": str(SEGMENT_BYTES)})
    for created in admin.create_topics([topic]).values():
        created.result(WAIT_S)

    def partitions() -> dict[int, tuple[int, list[int]]]:
        topic = listed(admin, "t").topics["t"]
        return {index: (p.leader, sorted(p.isrs)) for index, p in topic.partitions.items()}

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    acked: Acked = []
    produce(producer, b"before ", acked)
    victim = partitions()[0][0]
    cluster.command("node", "kill", str(victim))
    produce(producer, b"while one is away ", acked)
    left = sorted({1, 2, 3} - {victim})
    assert all(leader in left and isr == left for leader, isr in partitions().values())
    cluster.command("node", "start", str(victim))
    until("all ISRs whole", lambda: all(isr == [1, 2, 3] for _, isr in partitions().values()))
    # A new epoch, which the checkpoints on disk do not contain yet.
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(WAIT_S)
    until("the first leader leads again", lambda: partitions()[0][0] == victim)
    with ThreadPoolExecutor() as pool:
        written = pool.submit(produce, producer, b"after ", acked, LAST_RECORDS)
        copies = [copied(cluster.directory, tmp_path / f"copy-{n}") for n in range(2)]
        written.result(WAIT_S)
    high_watermarks = cluster.directory / f"node-{victim}/data/replication-offset-checkpoint"
    end = (2 * RECORDS + LAST_RECORDS) // PARTITIONS
    until(
        "a high watermark on disk",
        lambda: high_watermarks.exists() and f"t 0 {end}\n" in high_watermarks.read_text(),
    )
    copies.append(copied(cluster.directory, tmp_path / "copy"))
    for copy in (cluster.directory, *copies):
        assert broken_promises(copy) == []
    found = consumed(cluster.bootstrap, len(acked))
    assert sorted(found) == sorted(acked)
    for index in range(PARTITIONS):
        offsets = [offset for partition, offset, _ in found if partition == index]
        assert offsets == list(range(len(offsets)))
    first, *others = (segments(cluster.directory, node_id) for node_id in (1, 2, 3))
    assert first
    assert others == [first, first]
    _, complaint = cluster.end()
    assert complaint == ""


def test_broker_with_empty_disk_is_not_elected_without_operator(tmp_path: Path) -> None:
    """F22, P11: the last in-sync replica returns on a new disk, the other one with all records.

    No replica is elected until an operator requests it; then the complete copy leads. A partition
    with one replica starts from scratch. A replica in sync on the new disk may lead from then on.
    """
    settings = {"kraftbox.broker.connection.loss.fence.ms": "200"}
    with ProcessCluster(tmp_path, controllers=1, brokers=2, settings=settings) as cluster:
        cluster.start()
        wiped, copy = cluster.brokers
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topics = {"two": [wiped.id, copy.id], "one": [wiped.id]}
        new = [NewTopic(name, 1, replica_assignment=[ids]) for name, ids in topics.items()]
        for created in admin.create_topics(new).values():
            created.result(WAIT_S)

        def state(topic: str) -> tuple[int, list[int]]:
            found = listed(admin, topic).topics[topic].partitions[0]
            return found.leader, sorted(found.isrs)

        def end(topic: str) -> int:
            reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
            try:
                return reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)[1]
            finally:
                reader.close()

        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for topic in topics:
            for number in range(20):
                producer.produce(topic, str(number).encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
        copy.kill()
        until("an ISR of one", lambda: state("two") == (wiped.id, [wiped.id]))
        wiped.kill()
        shutil.rmtree(wiped.data)
        wiped.format()
        for broker in (copy, wiped):
            before = broker.log_text.count("to RUNNING")
            broker.start()
            until("a broker", lambda b=broker, n=before: b.log_text.count("to RUNNING") > n)  # type: ignore[misc]
        assert [state(topic) for topic in topics] == [(-1, [])] * 2
        asked = [TopicPartition(topic, 0) for topic in topics]
        admin.elect_leaders(ElectionType.UNCLEAN, asked).result(WAIT_S)
        until("the whole ISR", lambda: state("two") == (copy.id, [wiped.id, copy.id]))
        assert state("one") == (wiped.id, [wiped.id])
        assert (end("two"), end("one")) == (20, 0)
        copy.kill()
        until("a leader on the new disk", lambda: state("two") == (wiped.id, [wiped.id]))
        assert end("two") == 20
