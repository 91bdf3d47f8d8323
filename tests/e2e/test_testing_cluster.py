"""A cluster of `kraftbox.testing` in a test, apart from faults: on a single node."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer

from kraftbox.testing import AsyncKafkaCluster, ClusterError, KafkaCluster, Record

pytestmark = pytest.mark.e2e

RESET_S_MAX = 0.05
"""The best of several attempts; on a busy machine most may take longer."""


def test_kafka_cluster_is_one_node(kafka_cluster: KafkaCluster) -> None:
    (node,) = kafka_cluster.nodes.values()
    assert node.is_broker and node.is_controller


@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": -1})
def test_records_come_back_as_they_were_written(
    kafka_cluster: KafkaCluster, kafka_topic: str
) -> None:
    assert len(kafka_cluster.partitions(kafka_topic)) == 3
    written = kafka_cluster.produce(
        kafka_topic,
        b"one",
        "zwei",
        None,
        Record(b"four", b"key", [("h", b"1"), ("h", None)], timestamp_ms=5),
        Record(b"five", partition=2),
    )
    assert [record.value for record in written] == [b"one", b"zwei", None, b"four", b"five"]
    assert {record.partition for record in written[:3]} == {0, 1, 2}
    read = kafka_cluster.consume(kafka_topic)
    assert sorted(read, key=str) == sorted(written, key=str)
    again = kafka_cluster.produce(kafka_topic, Record(b"six", b"key"), Record(b"seven", b"key"))
    assert {record.partition for record in again} == {written[3].partition}
    assert [record.value for record in kafka_cluster.consume(kafka_topic, 7)].count(b"six") == 1


def test_more_than_fits_into_one_answer(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
    values = [b"%07d" % number + bytes(4_000) for number in range(400)]
    written = kafka_cluster.produce(kafka_topic, *values, partition=0)
    assert [record.offset for record in written] == list(range(400))
    assert kafka_cluster.consume(kafka_topic) == written
    assert kafka_cluster.consume(kafka_topic, 3) == written[:3]
    assert kafka_cluster.consume(kafka_topic, 0) == []


def test_kafka_cluster_errors_name_the_missing_item(
    kafka_cluster: KafkaCluster, kafka_topic: str
) -> None:
    kafka_cluster.produce(kafka_topic, b"one")
    with pytest.raises(ClusterError, match=r"received 1 of 2 records within 0\.2 s"):
        kafka_cluster.consume(kafka_topic, 2, timeout_s=0.2)
    with pytest.raises(ClusterError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kafka_cluster.produce(kafka_topic, b"one", partition=1)
    with pytest.raises(ClusterError, match="too large"):
        kafka_cluster.produce(kafka_topic, bytes(2 << 20))
    with pytest.raises(ValueError, match="count=-1"):
        kafka_cluster.consume(kafka_topic, -1)


def test_a_reset_leaves_no_topic_and_no_group_and_the_names_are_free(
    kafka_cluster: KafkaCluster,
) -> None:
    """The reset removes a consumer that a failed test left open from its group."""
    kafka_cluster.create_topic("orders", partitions=3)
    kafka_cluster.produce("orders", *["old"] * 10)
    left = Consumer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap_servers,
            "group.id": "left",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        left.subscribe(["orders"])
        assert left.poll(30) is not None
        kafka_cluster.reset()
        assert kafka_cluster.topics() == {}
    finally:
        left.close()
    took_s = []
    for _ in range(5):
        kafka_cluster.create_topic("orders")
        assert kafka_cluster.produce("orders", "new")[0].offset == 0
        assert [record.value for record in kafka_cluster.consume("orders")] == [b"new"]
        begun = time.perf_counter()
        kafka_cluster.reset()
        took_s.append(time.perf_counter() - begun)
    assert min(took_s) < RESET_S_MAX, took_s


async def test_methods_that_are_awaited(async_kafka_cluster: AsyncKafkaCluster) -> None:
    topic = await async_kafka_cluster.create_topic()
    (written,) = await async_kafka_cluster.produce(topic, b"one")
    assert await async_kafka_cluster.consume(topic, 1) == [written]
    leader = await async_kafka_cluster.leader(topic)
    assert leader is async_kafka_cluster.brokers[0] is async_kafka_cluster.node(leader.id)
    await leader.pause()
    assert await leader.state() == "paused"
    await leader.resume()
    assert leader is await async_kafka_cluster.controller()
    assert [one.leader for one in await async_kafka_cluster.partitions(topic)] == [leader.id]
    await async_kafka_cluster.delete_topic(topic)
    assert topic not in await async_kafka_cluster.topics()


def test_the_coroutines_have_all_that_the_plain_methods_have() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    process = {"start", "attach", "close", "supervised", "logs", "new_name"}
    assert names(KafkaCluster) - names(AsyncKafkaCluster) == process
