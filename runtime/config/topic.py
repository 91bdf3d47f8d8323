"""Topic configuration: what is in effect, from where, and what may be set.

A topic's value is its own override, else the node's value of the key that is its synonym (after
dynamic changes), else the default. `effective_topic_config` also lists, as DescribeConfigs does,
every place that holds a value, in the order in which they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from runtime.config.dynamic import DynamicLayers, broker_key, without_listener
from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.node import NodeConfig
from runtime.config.schema import ConfigKey
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS, TOPIC_KEYS


class Source(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

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
    """`value` is None for a sensitive one. `synonyms` begins with the value in effect."""

    key: ConfigKey
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]


class TopicConfig:
    """Typed values of one topic: `config["segment.bytes"]`, common ones as properties."""

    __slots__ = ("_values", "overrides")

    def __init__(self, values: dict[str, Any], overrides: Mapping[str, str]) -> None:
        self._values = values
        self.overrides = dict(overrides)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def with_overrides(self, overrides: Mapping[str, str]) -> TopicConfig:
        """This configuration with a topic's own values on top.

        A stored value that this version does not understand is left out: a node must be able to
        start on metadata that a newer one wrote. Setting such a value is refused elsewhere.
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
        return "compact" in self._values["cleanup.policy"]

    @property
    def deletes_old(self) -> bool:
        return "delete" in self._values["cleanup.policy"]

    @property
    def segment_bytes(self) -> int:
        internal: int | None = self._values["internal.segment.bytes"]
        size: int = self._values["segment.bytes"]
        return internal if internal is not None else size

    @property
    def max_message_bytes(self) -> int:
        value: int = self._values["max.message.bytes"]
        return value

    @property
    def min_insync_replicas(self) -> int:
        value: int = self._values["min.insync.replicas"]
        return value


def topic_defaults(node: NodeConfig) -> TopicConfig:
    """What a topic without overrides has on this node."""
    values: dict[str, Any] = {}
    for name, key in TOPIC_KEYS.items():
        values[name] = node[key.synonyms[0][0]] if key.synonyms else key.default
    values["retention.ms"] = node.log_retention_ms
    values["segment.ms"] = node.log_roll_ms
    values["segment.jitter.ms"] = node.log_roll_jitter_ms
    values["flush.ms"] = node.log_flush_interval_ms
    return TopicConfig(values, {})


def effective_topic_config(
    node: NodeConfig,
    *,
    topic: Mapping[str, str],
    cluster_dynamic: Mapping[str, str] | None = None,
    broker_dynamic: Mapping[str, str] | None = None,
) -> dict[str, ConfigValue]:
    """Every topic key with its value, source and synonyms, sorted by name.

    `node` is the static configuration; the two dynamic maps are the cluster-wide defaults and the
    broker's own.
    """
    layers = _Layers(node, cluster_dynamic or {}, broker_dynamic or {})
    config = topic_defaults(layers.merged).with_overrides(topic)
    result = {}
    for name in sorted(TOPIC_KEYS):
        key = TOPIC_KEYS[name]
        if key.internal and name not in topic:
            continue
        found = list(layers.synonyms(key.synonyms[0][0])) if key.synonyms else []
        if name in topic:
            found.insert(0, Synonym(name, topic[name], Source.TOPIC))
        source = found[0].source if found else Source.DEFAULT
        result[name] = ConfigValue(key, key.format(config[name]), source, tuple(found))
    return result


def effective_node_config(
    node: NodeConfig,
    *,
    cluster_dynamic: Mapping[str, str] | None = None,
    broker_dynamic: Mapping[str, str] | None = None,
) -> dict[str, ConfigValue]:
    """Every node key as DescribeConfigs shows a broker, sorted by name, and what else was given.

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


def validate_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> None:
    """Raise ConfigError unless a topic may have these overrides.

    `defaults` (see `topic_defaults`) completes the pairs of keys that limit each other.
    """
    values = dict(overrides)
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "topic")
        values[name] = key.parse(text)
    config = defaults.with_overrides(overrides)
    low, high = config["min.compaction.lag.ms"], config["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(
            "min.compaction.lag.ms", low, f"must not be above max.compaction.lag.ms={high}"
        )
    if config["remote.storage.enable"]:
        raise ConfigError(
            "remote.storage.enable", "true", "must be false: tiered storage is not built so far"
        )


class _Layers:
    """A node's values by where they come from."""

    def __init__(
        self, node: NodeConfig, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> None:
        layers = DynamicLayers(node, cluster, broker)
        self.merged = layers.merged
        self._given = {*layers.broker, *layers.cluster, *node.given}
        self._places: tuple[tuple[Source, Mapping[str, str] | _Defaults], ...] = (
            (Source.DYNAMIC_BROKER, layers.broker),
            (Source.DYNAMIC_DEFAULT_BROKER, layers.cluster),
            # A node has its id under both names, whichever was given.
            (Source.STATIC_BROKER, {"broker.id": str(node.node_id), **node.given}),
            (Source.DEFAULT, _Defaults()),
        )

    @property
    def extra_names(self) -> set[str]:
        """Names that are given somewhere and not keys of a node: plug-ins', single listeners'."""
        return self._given - NODE_KEYS.keys() - BROKER_DYNAMIC_KEYS.keys()

    def value(self, key: ConfigKey) -> str | None:
        if key.name == "broker.id":
            return str(self.merged.node_id)
        if key.name in NODE_KEYS:
            return key.format(self.merged[key.name])
        return next((synonym.value for synonym in self.synonyms(key.name)), None)

    def synonyms(self, name: str) -> Iterator[Synonym]:
        """Places with a value for `name` or a key that stands in for it, but only from the first
        that has `name` itself: a fallback key alone is not listed."""
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


_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
NODE_SYNONYMS: dict[str, tuple[str, ...]] = {
    **{name: family for family in _FAMILIES for name in family},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
"""Keys that are asked together, as Kafka lists them; the flush pair is one-way."""
