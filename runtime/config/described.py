"""Entries of DescribeConfigs by resource: keys, values, sources and synonyms.

Brokers and controllers both serve DescribeConfigs. Each role checks which resources exist and which
clients may request them. The entries are built here, so that the roles cannot differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from runtime.config.dynamic import broker_key
from runtime.config.effective import (
    ConfigValue,
    Source,
    Synonym,
    effective_node_config,
    effective_topic_config,
)
from runtime.config.node import NodeConfig
from runtime.config.schema import UNKNOWN, ConfigKey, Dynamic, GroupKey
from runtime.config.tables import BROKER_DYNAMIC_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, NODE_KEYS

ROOT_LOGGER = "root"


class DescribedKey(NamedTuple):
    """A described key. `read_only`: it cannot change at run time."""

    value: ConfigValue
    read_only: bool


def chosen(
    described: Iterable[DescribedKey], names: Collection[str] | None
) -> Iterable[DescribedKey]:
    """Return the keys that a request names; all of them if `names` is None or empty."""
    if not names:
        return described
    wanted = frozenset(names)
    return [each for each in described if each.value.key.name in wanted]


def describe_topic(
    node: NodeConfig,
    overrides: Mapping[str, str],
    *,
    cluster: Mapping[str, str],
    broker: Mapping[str, str],
) -> list[DescribedKey]:
    """Describe a topic with `overrides`; `cluster` and `broker` are the node's dynamic values."""
    values = effective_topic_config(
        node, topic=overrides, cluster_dynamic=cluster, broker_dynamic=broker
    )
    return [DescribedKey(value, False) for value in values.values()]


def describe_node(
    node: NodeConfig, *, cluster: Mapping[str, str], broker: Mapping[str, str]
) -> list[DescribedKey]:
    """Describe a node with its dynamic values."""
    values = effective_node_config(node, cluster_dynamic=cluster, broker_dynamic=broker)
    return [DescribedKey(value, _is_read_only(value.key)) for value in values.values()]


def _is_read_only(key: ConfigKey[Any]) -> bool:
    """Return whether a key is read-only; keys of single listeners and of plug-ins count as such."""
    if key.name in BROKER_DYNAMIC_KEYS:
        return False
    return key.name not in NODE_KEYS or key.dynamic is Dynamic.READ_ONLY


def describe_cluster_default(stored: Mapping[str, str]) -> list[DescribedKey]:
    """Describe the stored defaults of all brokers; no other values are in effect there."""
    described = []
    for name, text in sorted(stored.items()):
        key = broker_key(name)
        shown = None if key.sensitive else text
        source = Source.DYNAMIC_DEFAULT_BROKER
        value = ConfigValue(key, shown, source, (Synonym(name, shown, source),))
        described.append(DescribedKey(value, _is_read_only(key)))
    return described


def describe_group(
    node: NodeConfig,
    overrides: Mapping[str, str],
    *,
    cluster: Mapping[str, str],
    broker: Mapping[str, str],
) -> list[DescribedKey]:
    """Describe a group with `overrides`; other keys have the node's value for all groups.

    An internal key is described only where the group itself has a value, as in Kafka 4.4.
    """
    defaults = effective_node_config(node, cluster_dynamic=cluster, broker_dynamic=broker)
    return [
        _of_group(key, overrides.get(name), defaults)
        for name, key in sorted(GROUP_KEYS.items())
        if name in overrides or not key.internal
    ]


def _of_group(
    key: GroupKey[Any], given: str | None, defaults: Mapping[str, ConfigValue]
) -> DescribedKey:
    default = defaults.get(key.synonyms[0][0].name) if key.synonyms else None
    if default is not None:
        value, source, synonyms = default.value, default.source, default.synonyms
    else:
        value, source = key.format(key.default), Source.DEFAULT
        synonyms = () if value is None else (Synonym(key.name, value, source),)
    if given is not None:
        value, source = given, Source.GROUP
        synonyms = (Synonym(key.name, given, source), *synonyms)
    return DescribedKey(ConfigValue(key, value, source, synonyms), False)


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedKey]:
    """Describe a client-metrics subscription (KIP-714); an unknown name has the defaults."""
    described = []
    for name, key in sorted(CLIENT_METRICS_KEYS.items()):
        given = overrides.get(name)
        if given is None:
            value = ConfigValue(key, key.format(key.default), Source.DEFAULT, ())
        else:
            synonyms = (Synonym(name, given, Source.CLIENT_METRICS),)
            value = ConfigValue(key, given, Source.CLIENT_METRICS, synonyms)
        described.append(DescribedKey(value, False))
    return described


def describe_loggers(level: str) -> list[DescribedKey]:
    """Describe the root logger, the only one with a level."""
    key = ConfigKey(ROOT_LOGGER, UNKNOWN, level)
    return [DescribedKey(ConfigValue(key, level, Source.DYNAMIC_BROKER_LOGGER, ()), False)]
