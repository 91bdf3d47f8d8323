"""A suite in which every fourth test breaks a node: no test fails because of another one."""

from __future__ import annotations

import pytest

from kraftbox.testing import KafkaCluster

pytestmark = [pytest.mark.e2e, pytest.mark.kafka(brokers=3, controllers=1)]

IN_CI = 12
TESTS = 200
NUMBERS = [
    pytest.param(number, marks=[] if number < IN_CI else [pytest.mark.soak])
    for number in range(TESTS)
]


@pytest.mark.parametrize("number", NUMBERS)
def test_each_test_begins_on_a_whole_cluster(kafka_cluster: KafkaCluster, number: int) -> None:
    """Every broker is registered, so a topic with three replicas can be created at once."""
    assert [node.state for node in kafka_cluster.nodes.values()] == ["running"] * 4
    topic = kafka_cluster.create_topic(replication_factor=3)
    kafka_cluster.produce(topic, "one")
    if number % 4 == 0:
        leader = kafka_cluster.leader(topic)
        leader.kill()
        kafka_cluster.leader(topic, other_than=leader.id)
    kafka_cluster.produce(topic, "two")
    assert [record.value for record in kafka_cluster.consume(topic)] == [b"one", b"two"]
    if number % 40 == 1:
        kafka_cluster.brokers[number % 3].pause()
    if number % 40 == 3:
        kafka_cluster.controllers[0].kill()
