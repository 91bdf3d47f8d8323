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
    with pytest.raises(ClusterError, match=f"{kafka_topic} has no partition 1: it has partition 0"):
        kafka_cluster.produce(kafka_topic, b"one", partition=1)
    with pytest.raises(ClusterError, match="has no partition 7"):
        kafka_cluster.consume(kafka_topic, partition=7)
    with pytest.raises(ClusterError, match="has no partition 5: it has partition 0"):
        kafka_cluster.leader(kafka_topic, 5)
    with pytest.raises(ClusterError, match="^unknown topic nothere$"):
        kafka_cluster.leader("nothere", timeout_s=3600.0)
    with pytest.raises(ClusterError, match="unknown node 9; known: 1"):
        kafka_cluster.node(9)
    with pytest.raises(ClusterError, match="start it with isolate=True"):
        kafka_cluster.link(1, "clients").slow(10.0)
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


def test_operators_calls_are_in_the_test_api(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
    kafka_cluster.alter_config(
        {"retention.ms": 7_000, "cleanup.policy": "delete"}, topic=kafka_topic
    )
    kafka_cluster.alter_config({"cleanup.policy": None}, topic=kafka_topic)
    with pytest.raises(ClusterError, match="no.such"):
        kafka_cluster.alter_config({"no.such": 1}, topic=kafka_topic)
    leader = kafka_cluster.leader(kafka_topic)
    assert kafka_cluster.elect(kafka_topic) is leader
    with pytest.raises(ClusterError, match="kind='best': allowed: preferred, unclean"):
        kafka_cluster.elect(kafka_topic, kind="best")
    explained = kafka_cluster.explain(kafka_topic)
    assert (explained["leader"], explained["isr"]) == (leader.id, [leader.id])
    (written,) = kafka_cluster.produce(kafka_topic, {"a": 1}, key="k", headers={"h": "1"})
    assert (written.key, written.value, written.headers) == (b"k", b'{"a":1}', (("h", b"1"),))
    settings = {
        "bootstrap.servers": kafka_cluster.bootstrap_servers,
        "group.id": kafka_cluster.new_name("g"),
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([kafka_topic])
        assert consumer.poll(30) is not None
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    kafka_cluster.produce(kafka_topic, "later", "still later")
    assert kafka_cluster.group_lag(settings["group.id"]) == {(kafka_topic, 0): 2}
    with pytest.raises(ClusterError, match="unknown group nobody"):
        kafka_cluster.group_lag("nobody")


def test_heal_starts_a_killed_node_of_a_cluster_without_directory() -> None:
    """Outside pytest, `start` needs no folder and begins one node; `close` leaves nothing."""
    with KafkaCluster.start() as cluster:
        assert repr(cluster).startswith(f"<KafkaCluster {cluster.bootstrap_servers}, directory ")
        topic = cluster.create_topic()
        cluster.produce(topic, "before")
        cluster.node(1).kill()
        with pytest.raises(ClusterError, match="no broker is running: node 1 is killed"):
            cluster.produce(topic, "x")
        assert [str(repair) for repair in cluster.heal()] == ["node 1, killed"]
        assert cluster.heal() == []
        assert [record.value for record in cluster.consume(topic)] == [b"before"]
    assert repr(cluster).startswith("<KafkaCluster closed, ")
    assert not cluster.directory.exists()


@pytest.mark.kafka(brokers=3, controllers=1)
def test_leaderless_partition_concerns_only_those_who_use_it(kafka_cluster: KafkaCluster) -> None:
    """The caller's timeout is the timeout, and the error names the partition."""
    topic = kafka_cluster.create_topic(partitions=3, replication_factor=1)
    kafka_cluster.produce(topic, "0", "1", "2")
    lost = kafka_cluster.leader(topic, 1)
    lost.kill()
    while kafka_cluster.partitions(topic)[1].leader >= 0:
        time.sleep(0.02)
    kafka_cluster.produce(topic, "x", partition=0)
    assert [one.partition for one in kafka_cluster.produce(topic, *"abcd")] == [0, 2, 0, 2]
    assert len(kafka_cluster.consume(topic, partition=0)) == 4
    assert len(kafka_cluster.consume(topic, 6)) == 6
    with pytest.raises(ClusterError, match=f"no leader within 0.2 s: {topic}-1; received the 7 "):
        kafka_cluster.consume(topic, timeout_s=0.2)
    with pytest.raises(ClusterError, match=f"received 7 of 9 .*; no leader: {topic}-1"):
        kafka_cluster.consume(topic, 9, timeout_s=0.2)
    with pytest.raises(ClusterError, match=f"{topic}-1: LEADER_NOT_AVAILABLE"):
        kafka_cluster.produce(topic, "x", partition=1, timeout_s=0.2)


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
