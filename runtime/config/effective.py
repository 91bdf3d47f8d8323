"""Values in effect with their sources, as DescribeConfigs shows them for a node and its topics.

Each value has the list of all places that define it, in their order of precedence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from runtime.config import keys_quorum
from runtime.config.dynamic import DynamicLayers, broker_key, without_listener
from runtime.config.node import NodeConfig
from runtime.config.schema import ConfigKey, NodeKey
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS, TOPIC_KEYS
from runtime.config.topic import topic_defaults


class Source(IntEnum):
    """The source of a value, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class ConfigValue(NamedTuple):
    """A value with its source.

    `value` is None for a sensitive key. `synonyms` begins with the value in effect.
    """

    key: ConfigKey[Any]
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]


def effective_topic_config(
    node: NodeConfig,
    *,
    topic: Mapping[str, str],
    cluster_dynamic: Mapping[str, str] | None = None,
    broker_dynamic: Mapping[str, str] | None = None,
) -> dict[str, ConfigValue]:
    """Return every topic key with its value, source and synonyms, sorted by name.

    `node` is the static configuration. The two dynamic maps are the cluster-wide defaults and the
    broker's own values.
    """
    layers = _Layers(node, cluster_dynamic or {}, broker_dynamic or {})
    config = topic_defaults(layers.merged).with_overrides(topic)
    result = {}
    for name in sorted(TOPIC_KEYS):
        key = TOPIC_KEYS[name]
        if key.internal and name not in topic:
            continue
        found = list(layers.synonyms(key.synonyms[0][0].name)) if key.synonyms else []
        if name in topic:
            found.insert(0, Synonym(name, topic[name], Source.TOPIC))
        source = found[0].source if found else Source.DEFAULT
        result[name] = ConfigValue(key, key.format(config[key]), source, tuple(found))
    return result


def effective_node_config(
    node: NodeConfig,
    *,
    cluster_dynamic: Mapping[str, str] | None = None,
    broker_dynamic: Mapping[str, str] | None = None,
) -> dict[str, ConfigValue]:
    """Return every node key as DescribeConfigs shows it, sorted by name, with other given names.

    Sensitive values are None.
    """
    layers = _Layers(node, cluster_dynamic or {}, broker_dynamic or {})
    result = {}
    for name in sorted({*NODE_KEYS, *BROKER_DYNAMIC_KEYS, *layers.extra_names}):
        key = broker_key(name)
        found = tuple(layers.synonyms(name))
        shown_when_set = key.internal or name in BROKER_DYNAMIC_KEYS
        if shown_when_set and all(synonym.source is Source.DEFAULT for synonym in found):
            continue
        source = found[0].source if found else Source.DEFAULT
        value = None if key.sensitive else layers.value(key)
        result[name] = ConfigValue(key, value, source, found)
    return result


class _Layers:
    """A node's values by source."""

    def __init__(
        self, node: NodeConfig, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> None:
        layers = DynamicLayers(node, cluster, broker)
        self.merged = layers.merged
        self._given = {*layers.broker, *layers.cluster, *node.given}
        self._places: tuple[tuple[Source, Mapping[str, str] | _Defaults], ...] = (
            (Source.DYNAMIC_BROKER, layers.broker),
            (Source.DYNAMIC_DEFAULT_BROKER, layers.cluster),
            # A node has its ID under both names, whichever was given.
            (Source.STATIC_BROKER, {keys_quorum.BROKER_ID.name: str(node.node_id), **node.given}),
            (Source.DEFAULT, _Defaults()),
        )

    @property
    def extra_names(self) -> set[str]:
        """Given names that are not node keys: those of plug-ins and of single listeners."""
        return self._given - NODE_KEYS.keys() - BROKER_DYNAMIC_KEYS.keys()

    def value(self, key: ConfigKey[Any]) -> str | None:
        if key is keys_quorum.BROKER_ID:
            return str(self.merged.node_id)
        if isinstance(key, NodeKey):
            return self.merged.text(key)
        return next((synonym.value for synonym in self.synonyms(key.name)), None)

    def synonyms(self, name: str) -> Iterator[Synonym]:
        """Yield the places that define `name` or a fallback key, in their order of precedence.

        They begin with the first place that defines `name` itself: a fallback key alone is not
        listed.
        """
        names = _asked_together(name)
        hidden = broker_key(name).sensitive
        started = False
        for source, place in self._places:
            for candidate in names:
                value = place.get(candidate)
                if value is None:
                    continue
                started = started or candidate == name
                if started:
                    yield Synonym(candidate, None if hidden else value, source)


class _Defaults:
    """The default of every key, as text."""

    def get(self, name: str) -> str | None:
        key = NODE_KEYS.get(name) or BROKER_DYNAMIC_KEYS.get(name)
        return None if key is None or key.required else key.format(key.default)


def _asked_together(name: str) -> tuple[str, ...]:
    general = without_listener(name)
    return (name, general) if general != name else NODE_SYNONYMS.get(name, (name,))


def _node_synonyms() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield node keys with the names that are looked up for them, as Kafka lists them.

    They are the synonyms of one topic key. With another unit each replaces the others. With the
    same unit a synonym is a separate setting, to which only the first falls back (the flush pair).
    """
    for key in TOPIC_KEYS.values():
        if len(key.synonyms) > 1:
            names = tuple(synonym.name for synonym, _ in key.synonyms)
            for place, (synonym, factor) in enumerate(key.synonyms):
                if place == 0 or factor != 1:
                    yield synonym.name, names


NODE_SYNONYMS: Final = dict(_node_synonyms())
