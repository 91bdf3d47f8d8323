"""Last replica standing (F24): the ISR shrinks to its leader, which loses its unflushed records.

With eligible leader replicas no acknowledged record is lost; without them some are.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraftbox.chaos.checks import judge, summary
from kraftbox.chaos.history import Topic, save, value_bytes, value_id, value_of
from kraftbox.chaos.ledger import Ledger
from testkit.audits import elections_of
from testkit.processes.quorum_cluster import HOST, NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default"), pytest.mark.rest]

TOPIC = "orders"
RECORDS = 1000
WAIT_S = 60.0
SETTINGS = {
    "kraftbox.fault.files": "lossy",
    "broker.session.timeout.ms": "1500",
    "offsets.topic.num.partitions": "1",
}
FEATURE = "eligible.leader.replicas.version"
Place = tuple[int, int, int]


class Story:
    """A topic of three replicas that the first broker leads, and the ledger of its client."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        # The others are paused in between: a client that connects to them waits.
        self.bootstrap = f"{HOST}:{cluster.brokers[0].port}"
        self.ledger = Ledger(lambda: time.monotonic_ns() // 1000)
        self.ledger.topic(Topic(TOPIC, bytes(16), 1, 3, 2))
        self.writer = self.ledger.process("producer", "librdkafka")
        self._sent = 0
        ids = [broker.id for broker in cluster.brokers]
        new = NewTopic(TOPIC, 1, replica_assignment=[ids], config={"min.insync.replicas": "2"})
        admin = self.admin()
        admin.create_topics([new])[TOPIC].result(WAIT_S)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def state(self) -> tuple[int, list[int]]:
        """Return leader and ISR; without a reachable broker there is no leader."""
        try:
            found = self.admin().list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        except KafkaException:
            return -1, []
        return (found[0].leader, sorted(found[0].isrs)) if found else (-1, [])

    def wait_for(self, leader: int, *isr: int) -> None:
        wanted = (leader, list(isr))
        until(f"leader and ISR {wanted}", lambda: self.state() == wanted, WAIT_S, every_s=0.1)

    def write(self, count: int) -> None:
        """Send `count` records with acks=all; each outcome is in the ledger."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        for _ in range(count):
            value, order = value_id(self.writer, self._sent), self._sent
            begin_us = self.ledger.now_us()

            def told(
                error: Any,
                message: Any,
                value: int = value,
                at: tuple[int, int] = (order, begin_us),
            ) -> None:
                assert error is None, error
                self.ledger.sent([value], (self.writer, 0, 0), *at, message.offset(), 0)

            producer.produce(TOPIC, value_bytes(value), partition=0, on_delivery=told)
            self._sent += 1
        assert producer.flush(WAIT_S) == 0

    def read(self) -> int:
        """Read all records into the ledger as the final read, and return their number."""
        reader = self.ledger.process("reader", "librdkafka")
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), WAIT_S)
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            found: list[Any] = []
            begin_us = self.ledger.now_us()
            deadline = time.monotonic() + WAIT_S
            while len(found) < end and time.monotonic() < deadline:
                found += [m for m in consumer.consume(500, 0.2) if m.error() is None]
        finally:
            consumer.close()
        offsets = [message.offset() for message in found]
        values = [value_of(message.value()) for message in found]
        self.ledger.polled((reader, 0, 0), begin_us, offsets, values, final=True)
        self.ledger.ended((reader, 0, 0), begin_us, end, final=True)
        return len(found)

    def lose_the_last(self) -> tuple[NodeProcess, NodeProcess, NodeProcess]:
        """Pause both followers, then cut the leader's power, and start it first.

        Returns: leader, first and second follower.
        """
        leader, first, second = self.cluster.brokers
        self.wait_for(leader.id, leader.id, first.id, second.id)
        self.write(RECORDS // 2)
        first.pause()
        self.wait_for(leader.id, leader.id, second.id)
        self.write(RECORDS // 2)
        second.pause()
        self.wait_for(leader.id, leader.id)
        leader.kill()
        leader.start()
        return leader, first, second

    def elections(self, *broken: str) -> list[str]:
        """Return the kinds of elections by the audit, which compares the logs with the ledger.

        The brokers stop, the leader last: these files hold the flushed data.
        """
        leader, _ = self.state()
        for broker in sorted(self.cluster.brokers, key=lambda b: b.id == leader):
            broker.stop()
        path = self.cluster.directory / "history"
        save(path, self.ledger.history)
        told = elections_of(self.cluster.directory, history=[path], broken=broken)
        return [e.kind for e in told]


def unfenced(cluster: ProcessCluster, node: NodeProcess) -> bool:
    return node.log_text.count("to RUNNING") >= 2


def test_an_eligible_replica_leads_and_nothing_is_lost(tmp_path: Path) -> None:
    """P7, P11, P22: a crashed broker does not lead, though it was the last in sync and is back
    first."""
    with ProcessCluster(tmp_path, controllers=1, brokers=3, settings=SETTINGS) as cluster:
        cluster.start()
        story = Story(cluster)
        leader, first, second = story.lose_the_last()
        until("the last leader is back", lambda: unfenced(cluster, leader), WAIT_S)
        until("nobody leads", lambda: story.state()[0] == -1, WAIT_S)
        time.sleep(1)
        assert story.state() == (-1, [])
        second.resume()
        story.wait_for(second.id, leader.id, second.id)
        first.resume()
        story.wait_for(second.id, leader.id, first.id, second.id)
        assert story.read() == RECORDS
        findings = judge(story.ledger.history)
        assert findings == [], findings
        assert summary(story.ledger.history)["ok"] == RECORDS
        assert story.elections() == ["elr"]


def test_without_the_feature_the_ledger_counts_the_loss(tmp_path: Path) -> None:
    """The same faults: the empty log leads, and the other replicas are truncated."""
    with ProcessCluster(
        tmp_path, controllers=1, brokers=3, settings=SETTINGS, features=[f"{FEATURE}=0"]
    ) as cluster:
        cluster.start()
        story = Story(cluster)
        leader, first, second = story.lose_the_last()
        story.wait_for(leader.id, leader.id)
        for node in (first, second):
            node.resume()
        story.wait_for(leader.id, leader.id, first.id, second.id)
        left = story.read()
        assert left < RECORDS
        lost = [f for f in judge(story.ledger.history) if f.severity == "broken"]
        assert sum(f.total for f in lost) == RECORDS - left
        # Kafka, too, records this election as a clean one: only the logs reveal the loss.
        assert story.elections("acknowledged-lost") == ["isr"]
