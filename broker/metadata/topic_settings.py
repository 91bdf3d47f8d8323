"""Effective topic settings of a broker's data path.

`TopicSettings` is the part that partitions act on, ready to use: storage settings, the rules for
appended batches, the minimum of in-sync replicas. It is computed once per distinct set of
overrides, since most topics have none and thousands share one value; a change of the brokers'
dynamic configuration recomputes everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from metalog.image.delta import MetadataDelta
from metalog.image.values import EMPTY_IMAGE, ConfigResourceType, MetadataImage
from protocol.batch.header import TimestampType
from protocol.batch.validate import AppendRules
from protocol.compression import Codec
from runtime.config import DynamicLayers, NodeConfig, TopicConfig, topic_defaults
from runtime.log import get_logger
from storage.log.config import LogConfig

CACHED_MAX: Final = 1_000
"""Sets of overrides whose settings are kept."""

_log = get_logger("broker.topics")

_CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

_LOG_KEYS: Final = (
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
    "index.interval.bytes",
    "flush.messages",
    "flush.ms",
    "retention.bytes",
    "retention.ms",
    "local.retention.bytes",
    "local.retention.ms",
    "remote.storage.enable",
    "max.message.bytes",
    "file.delete.delay.ms",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "cleanup.policy",
    "message.timestamp.type",
)


class TopicSettings(NamedTuple):
    """What the data path needs to know of one topic's configuration."""

    log: LogConfig
    rules: AppendRules
    min_isr: int
    compacted: bool
    deletes: bool
    leader_throttled: tuple[str, ...] = ()
    follower_throttled: tuple[str, ...] = ()


def topic_settings(config: TopicConfig, node: NodeConfig) -> TopicSettings:
    """Translates an effective configuration."""
    values: dict[str, Any] = {key: config[key] for key in _LOG_KEYS}
    values["segment.bytes"] = config.segment_bytes
    codec = _CODECS[config["compression.type"]]
    rules = AppendRules(
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        timestamp_type=_timestamp_type(config),
        timestamp_before_max_ms=config["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=config["message.timestamp.after.max.ms"],
        compression=codec,
        compression_level=_compression_level(config, codec),
        compacted=config.is_compacted,
        always_walk=node["kraftbox.produce.validate.records"],
        budget_bytes=node["kraftbox.produce.decompressed.max.bytes"],
    )
    return TopicSettings(
        log=LogConfig.from_topic_config(values),
        rules=rules,
        min_isr=config.min_insync_replicas,
        compacted=config.is_compacted,
        deletes=config.deletes_old,
        leader_throttled=tuple(config["leader.replication.throttled.replicas"]),
        follower_throttled=tuple(config["follower.replication.throttled.replicas"]),
    )


def _timestamp_type(config: TopicConfig) -> TimestampType:
    if config["message.timestamp.type"] == "LogAppendTime":
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def _compression_level(config: TopicConfig, codec: Codec | None) -> int | None:
    if codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert codec is not None
        level: int = config[f"compression.{codec.name.lower()}.level"]
        return level
    return None


class TopicSettingsTable:
    """The settings of all topics under the newest image."""

    def __init__(self, node: NodeConfig) -> None:
        self._node = node
        self._effective = node
        self._defaults = topic_defaults(node)
        self._image: MetadataImage = EMPTY_IMAGE
        self._by_overrides: dict[frozenset[tuple[str, str]], TopicSettings] = {}

    @property
    def effective_node(self) -> NodeConfig:
        """The node's configuration with dynamic values on top."""
        return self._effective

    def config(self, topic: str) -> TopicConfig:
        """Every typed value in effect for `topic`."""
        overrides = self._image.configs.get((ConfigResourceType.TOPIC, topic))
        return self._defaults.with_overrides(overrides or {})

    def of(self, topic: str) -> TopicSettings:
        """The settings of `topic`, known or not."""
        overrides = self._image.configs.get((ConfigResourceType.TOPIC, topic))
        key = frozenset(overrides.items()) if overrides else frozenset()
        settings = self._by_overrides.get(key)
        if settings is None:
            config = self._defaults.with_overrides(overrides or {})
            if len(self._by_overrides) >= CACHED_MAX:
                self._by_overrides.clear()  # topics come and go, each with values of its own
            settings = self._by_overrides[key] = topic_settings(config, self._effective)
        return settings

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> list[str]:
        """Takes the next image; returns the topics whose settings may differ now, in order."""
        self._image = image
        if not delta.configs:
            return []
        brokers = {(ConfigResourceType.BROKER, ""), (ConfigResourceType.BROKER, self._own_name)}
        if brokers & delta.configs.keys():
            self._overlay()
            return sorted(image.topics.by_name)
        return sorted(name for type_, name in delta.configs if type_ == ConfigResourceType.TOPIC)

    @property
    def _own_name(self) -> str:
        return str(self._node.node_id)

    def _overlay(self) -> None:
        configs = self._image.configs
        layers = DynamicLayers(
            self._node,
            configs.get((ConfigResourceType.BROKER, "")) or {},
            configs.get((ConfigResourceType.BROKER, self._own_name)) or {},
        )
        for error in layers.refused:
            _log.error("dynamic configuration not applied", error=str(error))
        self._by_overrides.clear()
        self._effective = layers.merged
        self._defaults = topic_defaults(self._effective)
