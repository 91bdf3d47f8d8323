"""Configurations of single groups."""

import pytest

from runtime.config import ConfigError, UnknownKey
from runtime.config.groups import validate_group_config
from testkit.memory.node_config import node


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "-5"),
        ("consumer.session.timeout.ms", "soon"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.assignment.interval.ms", "15001"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "4001"),
        ("share.auto.offset.reset", "frob"),
        ("share.isolation.level", "frob"),
        ("streams.num.standby.replicas", "3"),
        ("streams.initial.rebalance.delay.ms", "-1"),
    ],
)
def test_group_values_beyond_the_nodes_limits(name, text):
    with pytest.raises(ConfigError) as refused:
        validate_group_config({name: text}, node())
    assert refused.value.key == name


def test_group_values_within_the_limits():
    validate_group_config({"consumer.session.timeout.ms": "60000"}, node())
    validate_group_config(
        {"consumer.session.timeout.ms": "99"},
        node(
            group_consumer_min_session_timeout_ms="9",
            group_consumer_min_heartbeat_interval_ms="5",
            group_consumer_heartbeat_interval_ms="98",
        ),
    )


def test_a_session_outlasts_its_heartbeats():
    static = node(group_consumer_max_heartbeat_interval_ms="50000")
    with pytest.raises(ConfigError, match="must be above consumer.heartbeat"):
        validate_group_config({"consumer.heartbeat.interval.ms": "45000"}, static)


def test_unknown_names():
    with pytest.raises(UnknownKey):
        validate_group_config({"session.timeout.ms": "1"}, node())


@pytest.mark.parametrize(
    ("overrides", "accepted"),
    [
        ({"streams.assignor.name": "sticky"}, True),
        ({"streams.assignor.name": "other"}, False),
        ({"streams.rack.aware.assignment.tags": "zone,rack"}, True),
        ({"streams.rack.aware.assignment.tags": "zone,zone"}, False),
        ({"streams.num.warmup.replicas": "20"}, True),
        ({"streams.num.warmup.replicas": "21"}, False),
        ({"streams.task.offset.interval.ms": "15000"}, True),
        ({"streams.task.offset.interval.ms": "14999"}, False),
        ({"errors.deadletterqueue.topic.name": "dlq.t"}, True),
        ({"errors.deadletterqueue.topic.name": "__t"}, False),
    ],
)
def test_group_keys_of_kafka_4_4_are_validated_as_there(
    overrides: dict[str, str], accepted: bool
) -> None:
    """Bounds and assignors come from the node, with its defaults."""
    if accepted:
        validate_group_config(overrides, node())
    else:
        with pytest.raises(ConfigError):
            validate_group_config(overrides, node())
