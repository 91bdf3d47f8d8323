"""Upgrades and downgrades of KIP-1303 node by node, with Kafka 4.4.0 as the version without it.

Every node begins as Kafka's and becomes ours in its directory, the controller first. Then the
controller alone is Kafka's again, and finally every node. A producer with acks=all runs all the
time, leaders move after each step, and each acknowledged record is there once at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from audit.reading.logs import read_listing
from audit.time_travel import image_at
from metalog.image.values import MetadataImage
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE, kafka_libs
from testkit.processes.quorum_cluster import ProcessCluster
from testkit.processes.waiting import until
from testkit.processes.wire_record import WireRecord
from tests.interop.mixed_cluster import (
    PARTITIONS,
    TOPIC,
    WAIT_S,
    Mixed,
    Writer,
    audited,
    check_logs,
    check_records,
    running,
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
BYTES = "leader.election.eligible.local.log.bytes"
SPAN = "leader.election.eligible.local.log.ms"
ON = {BYTES: "1", SPAN: "3600000"}
OFF = {BYTES: "-1", SPAN: "-1"}
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "kraftbox.local.log.report.interval.ms": "500",
    "kraftbox.broker.connection.loss.fence.ms": "200",
}
LAST_OF_KAFKA = 3
"""The last version of AlterPartition in Kafka 4.4.0."""


class Rolling:
    """The cluster while its nodes change; `mixed.theirs` are Kafka's."""

    def __init__(self, mixed: Mixed, record: WireRecord, writer: Writer) -> None:
        self.mixed, self.writer = mixed, writer
        self._record = record
        self._heard: dict[int, int] = {}

    def to_ours(self, node_id: int) -> None:
        self.mixed.theirs.pop(node_id).stop()
        node = self.mixed.cluster.nodes[node_id]
        node.write_config()
        node.start()

    def to_kafkas(self, node_id: int) -> None:
        node = self.mixed.cluster.nodes[node_id]
        assert node.stop() == 0
        self.mixed.theirs[node_id] = theirs = KafkaInPlace(node)
        theirs.start()

    def set_keys(self, keys: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in keys.items()
        ]
        self._alter(entries)

    def unset_keys(self) -> None:
        kind = AlterConfigOpType.DELETE
        self._alter([ConfigEntry(name, None, incremental_operation=kind) for name in ON])

    def set_another_key(self) -> None:
        kind = AlterConfigOpType.SET
        self._alter([ConfigEntry("retention.ms", "86400000", incremental_operation=kind)])

    def _alter(self, entries: list[ConfigEntry]) -> None:
        topic = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
        self.mixed.admin.incremental_alter_configs([topic])[topic].result(WAIT_S)

    def live_on(self) -> None:
        """Wait until every replica is back, and move both leaders there and back, under the
        writer."""
        self.mixed.wait_until_whole()
        self.mixed.order([3, 2, 4], [3, 4, 2])
        self.writer.wait_for_more()
        self.mixed.order([2, 3, 4], [4, 3, 2])
        self.writer.wait_for_more()
        self.mixed.wait_until_whole()

    def image(self) -> MetadataImage | None:
        """Return the image by the controller's log, of whichever kind; None during a write."""
        try:
            return image_at(
                read_listing(self.mixed.cluster.nodes[CONTROLLER].metadata_dir), None, None
            )
        except ProtocolError:
            return None

    def known(self) -> list[set[int]] | None:
        """Return for each partition the replicas with known stats of their current incarnation."""
        image = self.image()
        if image is None:
            return None
        epochs = {number: one.epoch for number, one in image.cluster.brokers.items()}
        partitions = image.topics.by_name[TOPIC].partitions
        return [
            {broker for broker, epoch in p.local_logs.lives if epochs.get(broker) == epoch}
            for p in (partitions[index] for index in range(PARTITIONS))
        ]

    def wait_until_known(self, *wanted: set[int]) -> None:
        until(f"{wanted} to be known", lambda: self.known() == list(wanted), WAIT_S)

    def proposals(self) -> set[int]:
        """Return versions of AlterPartition sent to the controller since the last call."""
        found: set[int] = set()
        for number, conversation in enumerate(self._record.conversations):
            heard = [
                asked.version
                for asked in conversation.requests()
                if asked.api_key == ApiKey.ALTER_PARTITION
            ]
            found.update(heard[self._heard.get(number, 0) :])
            self._heard[number] = len(heard)
        return found


@pytest.fixture
def rolling(tmp_path: Path) -> Iterator[Rolling]:
    record = WireRecord()
    with ProcessCluster(
        tmp_path,
        controllers=1,
        brokers=len(BROKERS),
        settings=SETTINGS,
        features=LEVELS[ORACLE],
        watch=lambda: record.begin("CONTROLLER"),
    ) as cluster:
        theirs = {node_id: KafkaInPlace(node) for node_id, node in cluster.nodes.items()}
        with running(cluster, theirs, BROKERS) as mixed:
            mixed.create([2, 3, 4], [4, 3, 2])
            with Writer(mixed.bootstrap) as writer:
                mixed.wait_for_leaders(2, 4)
                writer.wait_for_more()
                yield Rolling(mixed, record, writer)


def test_up_and_down_with_kafka_as_the_old_version(rolling: Rolling) -> None:
    mixed = rolling.mixed
    nobody: set[int] = set()

    # A new controller, old leaders, old followers.
    rolling.to_ours(CONTROLLER)
    rolling.live_on()
    rolling.set_keys(ON)
    rolling.live_on()
    assert rolling.known() == [nobody, nobody]
    assert max(rolling.proposals(), default=0) <= LAST_OF_KAFKA

    # One new broker: it leads old followers, and follows an old leader.
    rolling.to_ours(2)
    rolling.live_on()
    rolling.wait_until_known({2}, nobody)
    # Two of them: each fetches from the other as new ones do, from the third as before.
    rolling.to_ours(3)
    rolling.live_on()
    mixed.order([2, 3, 4], [3, 4, 2])
    rolling.wait_until_known({2, 3}, {2, 3})
    rolling.to_ours(4)
    rolling.live_on()
    rolling.wait_until_known({2, 3, 4}, {2, 3, 4})
    assert LAST_OF_KAFKA + 1 in rolling.proposals()

    # An old controller, and all others new: ISRs change, nothing is reported.
    rolling.to_kafkas(CONTROLLER)
    rolling.proposals()
    rolling.live_on()
    mixed.node(3).kill()
    mixed.wait_until_whole(2)
    rolling.writer.wait_for_more()
    mixed.node(3).start()
    rolling.live_on()
    assert max(rolling.proposals()) <= LAST_OF_KAFKA

    # A new one again: the stats that it wrote itself are still there, and stay in use.
    rolling.to_ours(CONTROLLER)
    rolling.live_on()
    rolling.wait_until_known({2, 3, 4}, {2, 3, 4})

    # Off, and back to where it began.
    rolling.set_keys(OFF)
    rolling.live_on()
    rolling.proposals()
    rolling.live_on()
    assert max(rolling.proposals(), default=0) <= LAST_OF_KAFKA
    for node_id in (4, 3, 2, CONTROLLER):
        rolling.to_kafkas(node_id)
        rolling.live_on()
    # The topic still has keys that Kafka does not know: it alters others, and removes these.
    rolling.set_another_key()
    rolling.unset_keys()

    rolling.writer.stop()
    check_records(rolling.writer, mixed.read())
    check_logs(mixed, mixed.marks())
    assert [e for e in audited(mixed) if e.is_lossy] == []
