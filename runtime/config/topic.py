"""Topic configuration: typed values, the node's defaults, and validation.

A topic's value is its own override, else the node's value of its synonym key (after dynamic
changes), else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from runtime.config import keys_topic
from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.node import NodeConfig
from runtime.config.schema import TopicKey
from runtime.config.tables import TOPIC_KEYS

T = TypeVar("T")


class TopicConfig:
    """Typed values of one topic by key: `config[keys_topic.RETENTION_MS]`."""

    __slots__ = ("_values", "overrides")

    def __init__(self, values: dict[str, Any], overrides: Mapping[str, str]) -> None:
        self._values = values
        self.overrides = dict(overrides)

    def __getitem__(self, key: TopicKey[T]) -> T:
        value: T = self._values[key.name]
        return value

    def with_overrides(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return this configuration with a topic's own values on top.

        Stored values that this version cannot parse are ignored: a node must be able to start on
        metadata that a newer version wrote. Requests to set such values are refused elsewhere.
        """
        if not overrides:
            return self
        values = dict(self._values)
        for name, text in overrides.items():
            key = TOPIC_KEYS.get(name)
            if key is None:
                continue
            try:
                values[name] = key.parse(text)
            except ConfigError:
                continue
        return TopicConfig(values, overrides)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self[keys_topic.CLEANUP_POLICY]

    @property
    def deletes_old(self) -> bool:
        return "delete" in self[keys_topic.CLEANUP_POLICY]

    @property
    def segment_bytes(self) -> int:
        internal = self[keys_topic.INTERNAL_SEGMENT_BYTES]
        return self[keys_topic.SEGMENT_BYTES] if internal is None else internal


def topic_defaults(node: NodeConfig) -> TopicConfig:
    """Return the configuration of a topic without overrides on this node."""
    values = {name: node.topic_default(key) for name, key in TOPIC_KEYS.items()}
    # Any negative time of a node means no limit.
    retention = keys_topic.RETENTION_MS.name
    values[retention] = max(-1, values[retention])
    return TopicConfig(values, {})


def validate_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> None:
    """Raise ConfigError unless a topic may have these overrides.

    `runtime.config.tiering` has the rules of tiered storage. `defaults` (see `topic_defaults`)
    completes the pairs of keys that limit each other.
    """
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "topic")
        key.parse(text)
    config = defaults.with_overrides(overrides)
    low, high = keys_topic.MIN_COMPACTION_LAG_MS, keys_topic.MAX_COMPACTION_LAG_MS
    if config[low] > config[high]:
        raise ConfigError(low.name, config[low], f"must not be above {high.name}={config[high]}")
