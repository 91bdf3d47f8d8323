"""Configuration errors, which show the values of known and insensitive keys only."""

from __future__ import annotations

import pytest

from runtime.config import ConfigError, NodeConfig, UnknownKey
from runtime.config.dynamic import DynamicLayers, check_broker_values
from runtime.config.tables import NODE_KEYS

SECRET = "TOP-SECRET"
GIVEN = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:1",
}


@pytest.mark.parametrize(
    ("key", "is_shown"),
    [
        ("num.partitions", True),
        ("cleanup.policy", True),
        ("listener.name.out.max.connections", True),
        ("ssl.keystore.password", False),
        ("listener.name.out.ssl.key.password", False),
        ("listener.name.out.plain.sasl.jaas.config", False),
        ("sasl.jaas.config", False),
        ("rsm.config.secret.access.key", False),
        ("no.such.key", False),
        ("", False),
    ],
)
def test_error_shows_the_value_only_of_a_known_key_that_is_not_sensitive(
    key: str, is_shown: bool
) -> None:
    other = ConfigError("num.partitions", "0", "must be at least 1")
    for error in (
        ConfigError(key, SECRET, "must be else"),
        UnknownKey(key, SECRET, "topic"),
        ConfigError.join([ConfigError(key, SECRET, "must be else"), other]),
        ConfigError.join([other, ConfigError(key, SECRET, "must be else")]),
    ):
        assert (SECRET in str(error)) is is_shown
        assert (SECRET in repr(error)) is is_shown
        assert "must be else" in str(error) or "unknown topic configuration" in str(error)


def test_error_marked_open_shows_its_value() -> None:
    error = ConfigError("rlmm.config.partitions", "x", "must be an integer", is_open=True)
    assert str(error) == "rlmm.config.partitions=x: must be an integer"
    assert "=x:" in str(ConfigError.join([error]))


def test_every_sensitive_key_is_hidden() -> None:
    sensitive = [name for name, key in NODE_KEYS.items() if key.sensitive]
    assert len(sensitive) > 5
    for name in sensitive:
        for each in (name, f"listener.name.out.{name}"):
            assert (
                str(ConfigError(each, SECRET, "must be else")) == f"{each}=(hidden): must be else"
            )


@pytest.mark.parametrize("name", ["ssl.keystore.password", "listener.name.out.ssl.key.password"])
def test_refused_dynamic_value_is_not_shown(name: str) -> None:
    """topic_settings.py logs the values that DynamicLayers refuses."""
    node = NodeConfig.parse(GIVEN)
    layers = DynamicLayers(node, {name: SECRET}, {})
    assert not any(SECRET in str(error) for error in layers.refused)
    try:
        check_broker_values([(name, SECRET)], for_all=True)
    except ConfigError as error:
        assert SECRET not in str(error)
