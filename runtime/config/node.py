"""A node's configuration: parsed once and typed, together with the given text.

`NodeConfig.parse` takes text properties (a file, the environment, overrides). It either returns a
complete configuration, or raises one ConfigError that lists every problem. Unknown keys only cause
warnings, because clients' keys and plug-ins' keys are common in such files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.config import keys_quorum
from runtime.config.checks import check_node
from runtime.config.errors import ConfigError
from runtime.config.node_values import LISTENER_PREFIX, NodeValues
from runtime.config.schema import CLASS, NodeKey
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS, TOPIC_KEYS

_PLUGIN_PREFIXES = (LISTENER_PREFIX, "rsm.config.", "rlmm.config.", "client.quota.callback.")


class NodeConfig(NodeValues):
    """A node's values, checked against each other."""

    @classmethod
    def parse(cls, props: Mapping[str, str], *, hostname: str = "localhost") -> NodeConfig:
        """Parse and check. `hostname` is advertised by listeners without a host.

        Raises ConfigError with every invalid value, every missing key and every broken rule.
        """
        values, errors = _parse_values(props)
        if errors:
            raise ConfigError.join(errors)
        config = cls(values, props, _warnings(props, values), hostname)
        errors = list(check_node(config))
        if errors:
            raise ConfigError.join(errors)
        heartbeat_ms = config[keys_quorum.BROKER_HEARTBEAT_INTERVAL_MS]
        session_ms = config[keys_quorum.BROKER_SESSION_TIMEOUT_MS]
        if heartbeat_ms * 2 > session_ms:
            config.warnings.append(
                f"broker.heartbeat.interval.ms={heartbeat_ms} is more than half of "
                f"broker.session.timeout.ms={session_ms}: one lost heartbeat fences the broker"
            )
        return config

    def overlaid(self, changes: Mapping[str, str]) -> NodeConfig:
        """Return a configuration with `changes` (dynamic values) on top. Raises ConfigError."""
        changed = NodeConfig.parse({**self.given, **changes}, hostname=self.hostname)
        changed.given = dict(self.given)
        return changed


def _parse_values(props: Mapping[str, str]) -> tuple[dict[str, Any], list[ConfigError]]:
    values: dict[str, Any] = {}
    errors: list[ConfigError] = []
    for name, key in NODE_KEYS.items():
        text = props.get(name)
        if text is not None:
            try:
                values[name] = key.parse(text)
            except ConfigError as error:
                errors.append(error)
        elif key.required:
            errors.append(ConfigError(name, None, _missing_phrase(key)))
        else:
            values[name] = key.default
    return values, errors


def _missing_phrase(key: NodeKey[Any]) -> str:
    hints: dict[NodeKey[Any], str] = {
        keys_quorum.PROCESS_ROLES: "must be broker, controller or broker,controller",
        keys_quorum.NODE_ID: "must be an integer of at least 0, different for every node",
        keys_quorum.CONTROLLER_LISTENER_NAMES: "must name the listener of the controllers",
    }
    return hints.get(key, f"needs a {key.type.name.lower()} value")


def _hint(name: str) -> str:
    """Return a suggestion for the name of an unknown key, empty without one."""
    topic_key = TOPIC_KEYS.get(name)
    if topic_key is not None and topic_key.synonyms:
        return f"; it is a key of topics; the key of nodes is {topic_key.synonyms[0][0].name}"
    # Imported only after a mistake, because the import costs time at every start.
    from difflib import get_close_matches

    near = get_close_matches(name, NODE_KEYS, n=1, cutoff=0.85)
    return f"; did you mean {near[0]}?" if near else ""


def _warnings(props: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """Return a line for each key that is unknown, or that is set and has no effect here."""
    from runtime.config.without_effect import WITHOUT_EFFECT

    reasons = {name: reason for reason, names in WITHOUT_EFFECT.items() for name in names}
    warnings = []
    for name in props:
        key = NODE_KEYS.get(name)
        if key is None:
            if name not in BROKER_DYNAMIC_KEYS and not name.startswith(_PLUGIN_PREFIXES):
                warnings.append(
                    f"{name} is not a known configuration key and has no effect{_hint(name)}"
                )
        elif values[name] == key.default:
            continue
        elif name in reasons:
            warnings.append(f"{name} has no effect: {reasons[name]}")
        elif key.kind is CLASS:
            warnings.append(f"{name} names a Java class and has no effect")
    return warnings
