"""A cluster restored from a copy of a controller's metadata log, as in docs/operations.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from kraftbox.testing import KafkaCluster

pytestmark = pytest.mark.e2e

LOG = "__cluster_metadata-0"
QUORUM_STATE = "quorum-state"
SHAPE = {"brokers": 1, "controllers": 3}


def test_controllers_begin_again_from_a_copy_of_one(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    cluster = KafkaCluster.start(place, **SHAPE)
    cluster.create_topic("kept", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce("kept", b"value", partition=0)
    assert producer.flush(30) == 0
    controllers = [node.id for node in cluster.controllers]
    source = cluster.node(controllers[-1])
    source.stop()
    backup = tmp_path / "backup"
    log = place / f"node-{source.id}" / "data" / LOG
    shutil.copytree(log, backup, ignore=shutil.ignore_patterns(QUORUM_STATE))
    source.start()
    cluster.close(keep_data=True)

    # All controllers lose everything but their identity.
    for number in controllers:
        lost = place / f"node-{number}" / "data" / LOG
        shutil.rmtree(lost)
        shutil.copytree(backup, lost)
    with KafkaCluster.start(place, **SHAPE) as again:
        assert again.cluster_id == cluster.cluster_id
        assert [len(partitions) for partitions in again.topics().values()] == [3]
        again.create_topic("new")
        consumer = Consumer(
            {
                "bootstrap.servers": again.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe(["kept"])
        try:
            assert consumer.poll(30).value() == b"value"
        finally:
            consumer.close()
