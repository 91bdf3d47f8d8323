"""A rolling upgrade from Kafka 4.3.1 to 4.4.0 and to Kraftbox with the documented commands.

A producer with acks=all runs all the time, and a group committed its offsets before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.kafka.in_place import KafkaInPlace
from testkit.kafka.jars import ORACLE, PREVIOUS, kafka_libs
from testkit.processes.quorum_cluster import CLUSTER_ID, ProcessCluster
from tests.interop import documented
from tests.interop.mixed_cluster import (
    PARTITIONS,
    TOPIC,
    WAIT_S,
    Mixed,
    Writer,
    audited,
    check_logs,
    check_records,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

CONTROLLER, BROKERS = 1, (2, 3, 4)
KRAFTBOX = None
STEPS = (
    *((CONTROLLER, ORACLE), (2, ORACLE), (3, KRAFTBOX)),
    *((CONTROLLER, KRAFTBOX), (2, KRAFTBOX), (4, KRAFTBOX)),
)
"""Node and its next release: brokers of three kinds follow a controller of each kind."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "kraftbox.broker.connection.loss.fence.ms": "200",
}
SECTION = "An upgrade from Kafka 4.3.1"


def works(command: str, mixed: Mixed) -> str:
    done = documented.run(command, mixed.bootstrap)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def levels(described: str) -> Mapping[str, str]:
    """Return the finalised level of each feature that kafka-features prints."""
    rows = (line.split() for line in described.splitlines() if line.startswith("Feature:"))
    return {row[1]: row[row.index("FinalizedVersionLevel:") + 1] for row in rows}


class Group:
    """A group with committed offsets."""

    def __init__(self, bootstrap: str) -> None:
        given = {"bootstrap.servers": bootstrap, "group.id": "kept", "log_level": 0}
        self._consumer = Consumer(given)
        self.places = [TopicPartition(TOPIC, index, 7 + index) for index in range(PARTITIONS)]

    def commit(self) -> None:
        self._consumer.commit(offsets=self.places, asynchronous=False)

    def offsets(self) -> list[int]:
        asked = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        return [place.offset for place in self._consumer.committed(asked, WAIT_S)]

    def close(self) -> None:
        self._consumer.close()


def test_rolling_upgrade_by_documented_commands_loses_nothing(tmp_path: Path) -> None:
    """4.3.1 formatted the controller with its defaults; in the end all is Kraftbox's, at 33."""
    lower, check, upgrade, describe = documented.commands(SECTION)
    with ProcessCluster(tmp_path, controllers=1, brokers=3, settings=SETTINGS) as cluster:
        theirs = {n: KafkaInPlace(node, version=PREVIOUS) for n, node in cluster.nodes.items()}
        mixed = Mixed(cluster, theirs, BROKERS)
        for broker in cluster.brokers:
            broker.format()
        theirs[CONTROLLER].node.format(CLUSTER_ID)
        try:
            for kafka in theirs.values():
                kafka.begin()
            for kafka in theirs.values():
                kafka.wait_until_ready()
            mixed.create([2, 3, 4], [4, 3, 2])
            group = Group(mixed.bootstrap)
            group.commit()
            works(lower, mixed)
            with Writer(mixed.bootstrap) as writer:
                for node_id, release in STEPS:
                    replace(mixed, node_id, release)
                    writer.wait_for_more()
                    mixed.wait_until_whole()
                assert not works(check, mixed).strip()
                before = levels(works(describe, mixed))
                works(upgrade, mixed)
                after = levels(works(describe, mixed))
                writer.wait_for_more()
            assert (before["metadata.version"], after["metadata.version"]) == ("4.3-IV0", "4.4-IV2")
            check_records(writer, mixed.read())
            check_logs(mixed, mixed.marks())
            assert group.offsets() == [place.offset for place in group.places]
            group.close()
            assert [e for e in audited(mixed) if e.is_lossy] == []
        finally:
            for kafka in mixed.theirs.values():
                kafka.kill()


def replace(mixed: Mixed, node_id: int, release: str | None) -> None:
    """Stop a node, and start that release of Kafka, or Kraftbox, in its directory."""
    mixed.theirs.pop(node_id).stop()
    node = mixed.cluster.nodes[node_id]
    if release is KRAFTBOX:
        node.write_config()
        node.start()
        return
    mixed.theirs[node_id] = kafka = KafkaInPlace(node, version=release)
    kafka.start()
