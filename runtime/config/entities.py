"""Configurations of groups and client-metrics subscriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from runtime.config import keys_entities
from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.group_bounds import BOUNDS, Bounds
from runtime.config.node import NodeConfig
from runtime.config.tables import CLIENT_METRICS_KEYS, GROUP_KEYS

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
_SESSIONS_AND_HEARTBEATS = (
    (keys_entities.CONSUMER_SESSION_TIMEOUT_MS, keys_entities.CONSUMER_HEARTBEAT_INTERVAL_MS),
    (keys_entities.SHARE_SESSION_TIMEOUT_MS, keys_entities.SHARE_HEARTBEAT_INTERVAL_MS),
    (keys_entities.STREAMS_SESSION_TIMEOUT_MS, keys_entities.STREAMS_HEARTBEAT_INTERVAL_MS),
)


def validate_group_config(overrides: Mapping[str, str], node: NodeConfig) -> None:
    """Raise ConfigError unless a group may have these values within the node's limits.

    UnknownKey for a name that groups do not have.
    """
    values = {name: node[key.synonyms[0][0]] for name, key in GROUP_KEYS.items() if key.synonyms}
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "group")
        values[name] = key.parse(text)
        bounds = BOUNDS.get(key.synonyms[0][0]) if key.synonyms else None
        if bounds is not None:
            _check_bounds(name, text, values[name], bounds, node)
    for session, heartbeat in _SESSIONS_AND_HEARTBEATS:
        if values[session.name] <= values[heartbeat.name]:
            raise ConfigError(
                session.name,
                values[session.name],
                f"must be above {heartbeat.name}={values[heartbeat.name]}",
            )


def _check_bounds(name: str, text: str, value: int, bounds: Bounds, node: NodeConfig) -> None:
    _, least, most = bounds
    if least is not None and value < node[least]:
        raise ConfigError(name, text, f"must not be below {least.name}={node[least]}")
    if value > node[most]:
        raise ConfigError(name, text, f"must not be above {most.name}={node[most]}")


def validate_client_metrics_config(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError unless a subscription of client metrics may have these values (KIP-714).

    UnknownKey for a name that subscriptions do not have.
    """
    for name, text in overrides.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "client metrics")
        value = key.parse(text)
        if key is keys_entities.MATCH:
            _check_match(value)


def interval_problem(overrides: Mapping[str, str]) -> ConfigError | None:
    """What is wrong with how often clients are to push, if anything."""
    name = keys_entities.INTERVAL_MS.name
    text = overrides.get(name)
    if text is None or INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        return None
    return ConfigError(name, text, f"must be from {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}")


def _check_match(entries: list[str]) -> None:
    """Each entry is `parameter=pattern`, and the pattern a regular expression."""
    for entry in entries:
        parameter, equals, pattern = (part.strip() for part in entry.partition("="))
        if not equals or parameter not in MATCH_PARAMETERS:
            raise ConfigError(
                keys_entities.MATCH.name,
                entry,
                f"must be PARAMETER=PATTERN of {', '.join(sorted(MATCH_PARAMETERS))}",
            )
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(
                keys_entities.MATCH.name, entry, f"must have a regular expression: {error}"
            ) from error
