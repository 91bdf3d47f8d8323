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
