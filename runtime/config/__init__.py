"""The configuration engine: Kafka's keys with their types, defaults, rules and sources.

Pure: text in, typed values or a ConfigError out. The tables (`keys_*.py`) describe the keys of
Kafka 4.4.0; tests compare them with Kafka's own if it is available.
"""

from __future__ import annotations

from runtime.config.dynamic import DynamicLayers
from runtime.config.effective import (
    ConfigValue,
    Source,
    Synonym,
    effective_node_config,
    effective_topic_config,
)
from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.listeners import HostPort, Listener, Voter
from runtime.config.node import NodeConfig
from runtime.config.schema import ConfigKey, Dynamic, Importance, Type
from runtime.config.topic import TopicConfig, topic_defaults, validate_topic_config

__all__ = [
    "ConfigError",
    "ConfigKey",
    "ConfigValue",
    "Dynamic",
    "DynamicLayers",
    "HostPort",
    "Importance",
    "Listener",
    "NodeConfig",
    "Source",
    "Synonym",
    "TopicConfig",
    "Type",
    "UnknownKey",
    "Voter",
    "effective_node_config",
    "effective_topic_config",
    "topic_defaults",
    "validate_topic_config",
]
