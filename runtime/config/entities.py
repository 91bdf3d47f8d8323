"""Configurations of groups and client-metrics subscriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.node import NodeConfig
from runtime.config.tables import CLIENT_METRICS_KEYS, GROUP_KEYS, NODE_KEYS

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000

MATCH_PARAMETERS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_SESSIONS = ("consumer", "share", "streams")


def validate_group_config(overrides: Mapping[str, str], node: NodeConfig) -> None:
    """Raise ConfigError unless a group may have these values within the node's limits.

    A key `consumer.session.timeout.ms` has its limits in the node's
    `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`, where those
    exist. UnknownKey for a name that groups do not have.
    """
    values = {name: node[key.synonyms[0][0]] for name, key in GROUP_KEYS.items() if key.synonyms}
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "group")
        value = values[name] = key.parse(text)
        kind, _, what = name.partition(".")
        low, high = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
        if what == "num.standby.replicas":
            high = "group.streams.max.standby.replicas"
        if low in NODE_KEYS and value < node[low]:
            raise ConfigError(name, text, f"must not be below {low}={node[low]}")
        if high in NODE_KEYS and value > node[high]:
            raise ConfigError(name, text, f"must not be above {high}={node[high]}")
    for kind in _SESSIONS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            raise ConfigError(
                session, values[session], f"must be above {heartbeat}={values[heartbeat]}"
            )


def validate_client_metrics_config(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError unless a subscription of client metrics may have these values (KIP-714).

    UnknownKey for a name that subscriptions do not have.
    """
    for name, text in overrides.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "client metrics")
        value = key.parse(text)
        if name == "match":
            _check_match(value)


def interval_problem(overrides: Mapping[str, str]) -> ConfigError | None:
    """What is wrong with how often clients are to push, if anything."""
    text = overrides.get("interval.ms")
    if text is None or INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        return None
    return ConfigError("interval.ms", text, f"must be from {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}")


def _check_match(entries: list[str]) -> None:
    """Each entry is `parameter=pattern`, and the pattern a regular expression."""
    for entry in entries:
        parameter, equals, pattern = (part.strip() for part in entry.partition("="))
        if not equals or parameter not in MATCH_PARAMETERS:
            raise ConfigError(
                "match",
                entry,
                f"must be PARAMETER=PATTERN of {', '.join(sorted(MATCH_PARAMETERS))}",
            )
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError("match", entry, f"must have a regular expression: {error}") from error
