"""The strategy of unclean recovery: the settings that define it, and their precedence."""

from __future__ import annotations

import pytest

from controller.configs.topic_settings import (
    ConfigSource,
    RecoveryStrategy,
    recovery_manager_enabled,
    recovery_timeout_ms,
    strategy_in_force,
)
from metalog.image.values import ConfigResourceType
from protocol.metadata import ConfigRecord
from testkit.memory.controller import Cluster

STRATEGY = "unclean.recovery.strategy"
FLAG = "unclean.leader.election.enable"
AGGRESSIVE, BALANCED, NONE = RecoveryStrategy


def configure(cluster: Cluster, resource: str, key: str, value: str | None) -> None:
    is_broker = resource in ("node", "cluster")
    kind = ConfigResourceType.BROKER if is_broker else ConfigResourceType.TOPIC
    cluster.apply(
        [
            ConfigRecord(
                resource_type=int(kind),
                resource_name={"node": "100", "cluster": ""}.get(resource, resource),
                name=key,
                value=value,
            )
        ]
    )


def test_recovery_strategy_defaults_to_balanced() -> None:
    found = strategy_in_force(Cluster().view(), "t")
    assert found == (BALANCED, FLAG, ConfigSource.STATIC)


def test_recovery_strategy_precedence_of_settings() -> None:
    """Each value added takes precedence over all before it."""
    cluster = Cluster(unclean_leader_election_enable="true")
    assert strategy_in_force(cluster.view(), "t") == (AGGRESSIVE, FLAG, ConfigSource.STATIC)
    for resource, key, value, expected in (
        ("cluster", FLAG, "false", (BALANCED, FLAG, ConfigSource.CLUSTER)),
        ("node", FLAG, "true", (AGGRESSIVE, FLAG, ConfigSource.NODE)),
        ("cluster", STRATEGY, "None", (NONE, STRATEGY, ConfigSource.CLUSTER)),
        ("node", STRATEGY, "Balanced", (BALANCED, STRATEGY, ConfigSource.NODE)),
        ("t", FLAG, "true", (AGGRESSIVE, FLAG, ConfigSource.TOPIC)),
        ("t", STRATEGY, "None", (NONE, STRATEGY, ConfigSource.TOPIC)),
    ):
        configure(cluster, resource, key, value)
        assert strategy_in_force(cluster.view(), "t") == expected, (resource, key)
    configure(cluster, "t", STRATEGY, None)
    assert strategy_in_force(cluster.view(), "t") == (AGGRESSIVE, FLAG, ConfigSource.TOPIC)


def test_recovery_strategy_of_transaction_log_leaves_election_to_operator() -> None:
    """The topic is created with the flag false; only its own strategy lets recovery elect (T1)."""
    topic = "__transaction_state"
    cluster = Cluster(unclean_leader_election_enable="true")
    configure(cluster, topic, FLAG, "false")
    assert strategy_in_force(cluster.view(), topic) == (NONE, FLAG, ConfigSource.TOPIC)
    configure(cluster, "cluster", STRATEGY, "Aggressive")
    assert strategy_in_force(cluster.view(), topic) == (NONE, FLAG, ConfigSource.TOPIC)
    configure(cluster, topic, STRATEGY, "Balanced")
    assert strategy_in_force(cluster.view(), topic) == (BALANCED, STRATEGY, ConfigSource.TOPIC)
    configure(cluster, topic, STRATEGY, None)
    configure(cluster, topic, FLAG, "true")
    assert strategy_in_force(cluster.view(), topic) == (AGGRESSIVE, FLAG, ConfigSource.TOPIC)


def test_a_static_strategy_counts_where_it_is_given() -> None:
    cluster = Cluster(unclean_recovery_strategy="Balanced", unclean_leader_election_enable="true")
    assert strategy_in_force(cluster.view(), "t") == (BALANCED, STRATEGY, ConfigSource.STATIC)
    configure(cluster, "cluster", FLAG, "true")
    assert strategy_in_force(cluster.view(), "t") == (BALANCED, STRATEGY, ConfigSource.STATIC)
    configure(cluster, "cluster", STRATEGY, "Aggressive")
    assert strategy_in_force(cluster.view(), "t").strategy is AGGRESSIVE


@pytest.mark.parametrize("value", ["aggressive", "", "maybe"])
def test_a_value_that_does_not_parse_counts_as_not_set(value: str) -> None:
    cluster = Cluster()
    configure(cluster, "t", FLAG, "true")
    configure(cluster, "t", STRATEGY, value)
    assert strategy_in_force(cluster.view(), "t") == (AGGRESSIVE, FLAG, ConfigSource.TOPIC)


def test_manager_and_timeout_are_the_clusters() -> None:
    cluster = Cluster()
    assert not recovery_manager_enabled(cluster.view())
    assert recovery_timeout_ms(cluster.view()) == 300_000
    configure(cluster, "cluster", "unclean.recovery.manager.enabled", "true")
    configure(cluster, "cluster", "unclean.recovery.timeout.ms", "0")
    assert recovery_manager_enabled(cluster.view())
    assert recovery_timeout_ms(cluster.view()) == 0
    assert recovery_manager_enabled(Cluster(unclean_recovery_manager_enabled="true").view())
