"""Configurations of single groups."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.config import keys_group
from runtime.config import keys_group_coordinator as keys
from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.group_bounds import BOUNDS, Bounds
from runtime.config.node import NodeConfig
from runtime.config.tables import GROUP_KEYS
from runtime.config.validators import repeats

_SESSIONS_AND_HEARTBEATS = (
    (keys_group.CONSUMER_SESSION_TIMEOUT_MS, keys_group.CONSUMER_HEARTBEAT_INTERVAL_MS),
    (keys_group.SHARE_SESSION_TIMEOUT_MS, keys_group.SHARE_HEARTBEAT_INTERVAL_MS),
    (keys_group.STREAMS_SESSION_TIMEOUT_MS, keys_group.STREAMS_HEARTBEAT_INTERVAL_MS),
)


def validate_group_config(overrides: Mapping[str, str], node: NodeConfig) -> None:
    """Raise ConfigError unless a group may have these values within the node's limits.

    Raises UnknownKey for a name that groups do not have.
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
    _check_assignor(overrides, node)
    tags = keys_group.STREAMS_RACK_AWARE_ASSIGNMENT_TAGS.name
    if repeats(overrides.get(tags, "")):
        raise ConfigError(tags, overrides[tags], "must not repeat a tag")
    for session, heartbeat in _SESSIONS_AND_HEARTBEATS:
        if values[session.name] <= values[heartbeat.name]:
            raise ConfigError(
                session.name,
                values[session.name],
                f"must be above {heartbeat.name}={values[heartbeat.name]}",
            )


def _check_assignor(overrides: Mapping[str, str], node: NodeConfig) -> None:
    """Raise ConfigError if a streams group names an assignor that its coordinator lacks."""
    name, known = keys_group.STREAMS_ASSIGNOR_NAME.name, keys.GROUP_STREAMS_ASSIGNORS
    if overrides.get(name) and overrides[name] not in node[known]:
        raise ConfigError(name, overrides[name], f"must be in {known.name}={','.join(node[known])}")


def _check_bounds(name: str, text: str, value: int, bounds: Bounds, node: NodeConfig) -> None:
    _, least, most = bounds
    if least is not None and value < node[least]:
        raise ConfigError(name, text, f"must be at least {least.name}={node[least]}")
    if most is not None and value > node[most]:
        raise ConfigError(name, text, f"must be at most {most.name}={node[most]}")
