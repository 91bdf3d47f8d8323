"""Stored dynamic values: their validity, and a node's resulting configuration."""

import pytest

from runtime.config import ConfigError, DynamicLayers, NodeConfig, keys_log, keys_server
from runtime.config.dynamic import broker_key, check_broker_values, without_listener
from runtime.config.schema import Type
from runtime.config.tables import NODE_KEYS
from testkit.memory.node_config import node


def layers(cluster: dict[str, str], broker: dict[str, str], **props: str) -> DynamicLayers:
    return DynamicLayers(node(**props), cluster, broker)


def test_the_nodes_own_values_win_over_those_of_all():
    found = layers(
        {"log.retention.ms": "5", "log.segment.bytes": "2000000"}, {"log.retention.ms": "6"}
    )
    assert found.merged[keys_log.LOG_RETENTION_MS] == 6
    assert found.merged[keys_log.LOG_SEGMENT_BYTES] == 2_000_000
    assert found.refused == []


def test_the_static_values_stay_what_was_given():
    merged = layers({}, {"log.retention.ms": "6"}, log_retention_ms="7").merged
    assert merged.given["log.retention.ms"] == "7"
    assert merged[keys_log.LOG_RETENTION_MS] == 6


@pytest.mark.parametrize(
    ("cluster", "broker", "key", "value"),
    [
        ({"log.cleaner.threads": "3"}, {"log.cleaner.threads": "many"}, "log.cleaner.threads", 3),
        ({"node.id": "7"}, {}, "node.id", 1),
        ({"listeners": "PLAINTEXT://:1"}, {}, "listeners", ["PLAINTEXT://:9092"]),
        ({"log.roll.ms": "0", "log.retention.ms": "9"}, {}, "log.retention.ms", 9),
        ({"log.retention.ms": "9"}, {"log.roll.ms": "0"}, "log.retention.ms", 9),
    ],
)
def test_a_value_that_does_not_fit_is_left_out_alone(cluster, broker, key, value):
    found = layers(cluster, broker)
    assert found.merged[NODE_KEYS[key]] == value
    assert len(found.refused) == 1


def test_values_of_single_listeners_reach_the_listener():
    found = layers({}, {"listener.name.plaintext.max.connections": "5"})
    assert found.merged.of_listener("PLAINTEXT", keys_server.MAX_CONNECTIONS) == "5"
    assert found.merged.of_listener("OTHER", keys_server.MAX_CONNECTIONS) is None
    assert layers({}, {"listener.name.plaintext.max.connections": "x"}).refused


def test_names_of_plug_ins_are_kept_and_hidden():
    found = layers({}, {"my.reporter.url": "x"})
    assert found.broker == {"my.reporter.url": "x"}
    assert broker_key("my.reporter.url").sensitive
    assert broker_key("my.reporter.url").type is Type.UNKNOWN
    assert broker_key("listener.name.a.max.connections").type is Type.INT
    assert without_listener("listener.name.a.max.connections") == "max.connections"
    assert without_listener("max.connections") == "max.connections"


@pytest.mark.parametrize(
    ("name", "text", "for_all", "bad"),
    [
        ("log.cleaner.threads", "2", True, False),
        ("log.cleaner.threads", "-1", True, True),
        ("node.id", "2", False, True),
        ("ssl.keystore.type", "PEM", False, False),
        ("ssl.keystore.type", "PEM", True, True),
        ("listeners", "PLAINTEXT://:1", False, True),
        ("leader.replication.throttled.rate", "10", False, False),
        ("my.reporter.url", "x", True, False),
    ],
)
def test_dynamic_value_is_valid_for_one_broker_or_all(name, text, for_all, bad):
    if bad:
        with pytest.raises(ConfigError):
            check_broker_values([(name, text)], for_all=for_all)
    else:
        check_broker_values([(name, text)], for_all=for_all)


def test_no_values_leave_the_node_as_it_is():
    static: NodeConfig = node()
    assert DynamicLayers(static, {}, {}).merged is static
