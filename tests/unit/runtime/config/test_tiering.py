"""Conditions for a tiered topic (KIP-405, KIP-950), on the topic and on the node."""

import pytest

from runtime.config import ConfigError, TopicConfig, topic_defaults
from runtime.config.tiering import tiering_problem, turning_off_problem
from testkit.memory.node_config import node

ENABLED = {"remote.storage.enable": "true"}
TIERING = {
    "remote_log_storage_system_enable": "true",
    "rsm_config_url": "file:///tier",
}


def topic(**overrides: str) -> TopicConfig:
    dotted = {name.replace("_", "."): text for name, text in overrides.items()}
    return topic_defaults(node()).with_overrides({**ENABLED, **dotted})


def test_only_where_the_system_is_on():
    problem = tiering_problem(topic(), system_enabled=False)
    assert problem is not None and problem.key == "remote.storage.enable"
    assert "remote.log.storage.system.enable" in str(problem)
    assert tiering_problem(topic(), system_enabled=True) is None
    untiered = topic_defaults(node()).with_overrides({"cleanup.policy": "compact"})
    assert tiering_problem(untiered, system_enabled=False) is None


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        ({"cleanup_policy": "compact"}, "cleanup.policy"),
        ({"cleanup_policy": "compact,delete"}, "cleanup.policy"),
        ({"cleanup_policy": "delete"}, None),
        ({"cleanup_policy": ""}, None),
        ({"local_retention_ms": "2", "retention_ms": "1"}, "local.retention.ms"),
        ({"local_retention_ms": "-1", "retention_ms": "1"}, "local.retention.ms"),
        ({"local_retention_ms": "-2", "retention_ms": "1"}, None),
        ({"local_retention_ms": "1", "retention_ms": "1"}, None),
        ({"local_retention_ms": "7", "retention_ms": "-1"}, None),
        ({"local_retention_bytes": "2", "retention_bytes": "1"}, "local.retention.bytes"),
        ({"local_retention_bytes": "-1", "retention_bytes": "1"}, "local.retention.bytes"),
        ({"local_retention_bytes": "-1"}, None),
        ({"local_retention_bytes": "0", "retention_bytes": "0"}, None),
        ({"remote_copy_lag_ms": "6", "local_retention_ms": "5"}, "remote.copy.lag.ms"),
        ({"remote_copy_lag_ms": "5", "local_retention_ms": "5"}, None),
        ({"remote_copy_lag_ms": "6", "retention_ms": "5"}, "remote.copy.lag.ms"),
        ({"remote_copy_lag_ms": "6", "retention_ms": "-1"}, None),
        ({"remote_copy_lag_ms": "-1", "local_retention_ms": "5"}, None),
        ({"remote_copy_lag_ms": "1", "local_retention_ms": "0"}, "remote.copy.lag.ms"),
        ({"remote_copy_lag_bytes": "6", "local_retention_bytes": "5"}, "remote.copy.lag.bytes"),
        ({"remote_copy_lag_bytes": "6", "retention_bytes": "5"}, "remote.copy.lag.bytes"),
        ({"remote_copy_lag_bytes": "6"}, None),
        # The node's retention.ms counts where the topic has none: seven days.
        ({"local_retention_ms": "604800001"}, "local.retention.ms"),
    ],
)
def test_tiering_problem_of_topic_settings(overrides, refused):
    problem = tiering_problem(topic(**overrides), system_enabled=True)
    assert (problem and problem.key) == refused


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        ({}, None),
        ({"local_retention_ms": "5", "retention_ms": "5"}, None),
        ({"local_retention_ms": "4", "retention_ms": "5"}, "local.retention.ms"),
        ({"local_retention_ms": "4", "retention_ms": "-1"}, "local.retention.ms"),
        ({"local_retention_bytes": "4", "retention_bytes": "5"}, "local.retention.bytes"),
        ({"local_retention_bytes": "4"}, "local.retention.bytes"),
    ],
)
def test_without_copies_the_disk_must_keep_what_the_topic_keeps(overrides, refused):
    config = topic(remote_log_copy_disable="true", **overrides)
    problem = tiering_problem(config, system_enabled=True)
    assert (problem and problem.key) == refused


def test_a_tier_is_left_only_by_deleting_what_it_has():
    off = topic_defaults(node())
    deleting = off.with_overrides({"remote.log.delete.on.disable": "true"})
    problem = turning_off_problem(topic(), off)
    assert problem is not None
    assert "remote.log.delete.on.disable=true" in str(problem)
    assert "remote.log.copy.disable=true" in str(problem)
    assert turning_off_problem(topic(), deleting) is None
    assert turning_off_problem(topic(), topic()) is None
    assert turning_off_problem(off, off) is None


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"log_local_retention_ms": "2", "log_retention_ms": "1"}, "log.retention.ms=1"),
        ({"log_local_retention_bytes": "-1", "log_retention_bytes": "9"}, "log.retention.bytes=9"),
        (
            {"log_remote_copy_lag_ms": "3", "log_local_retention_ms": "2"},
            "log.local.retention.ms in effect, 2",
        ),
        (
            {"log_remote_copy_lag_bytes": "3", "log_retention_bytes": "2"},
            "log.local.retention.bytes in effect, 2",
        ),
    ],
)
def test_limits_of_a_node_that_tiers(properties, said):
    with pytest.raises(ConfigError) as caught:
        node(**TIERING, **properties)
    assert caught.value.key == next(iter(properties)).replace("_", ".")
    assert said in str(caught.value)
    node(**properties)  # without the remote storage system the value is not checked
