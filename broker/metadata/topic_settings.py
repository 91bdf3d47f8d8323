"""Effective topic settings of a broker's data path.

`TopicSettings` is the part that partitions act on, ready to use: storage settings, the rules for
appended batches, the minimum of in-sync replicas. It is computed once per distinct set of
overrides, since most topics have none and thousands share one value. A change of the brokers'
dynamic configuration recomputes everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from metalog.image.delta import MetadataDelta
from metalog.image.local_log import OFF, LocalLogThresholds
from metalog.image.values import EMPTY_IMAGE, ConfigResourceType, MetadataImage
from protocol.batch.header import TimestampType
from protocol.batch.validate import AppendRules
from protocol.compression import Codec
from runtime.config import (
    DynamicLayers,
    NodeConfig,
    TopicConfig,
    keys_kraftbox,
    keys_remote,
    keys_topic,
    topic_defaults,
)
from runtime.log import get_logger
from storage.log.config import LogConfig

CACHED_MAX: Final = 1_000
"""Maximum number of sets of overrides whose settings are cached."""

_log = get_logger("broker.topics")

_CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

_LEVELS: Final = {
    Codec.GZIP: keys_topic.COMPRESSION_GZIP_LEVEL,
    Codec.LZ4: keys_topic.COMPRESSION_LZ4_LEVEL,
    Codec.ZSTD: keys_topic.COMPRESSION_ZSTD_LEVEL,
}


class TopicSettings(NamedTuple):
    """The values of one topic's configuration that the data path needs."""

    log: LogConfig
    rules: AppendRules
    min_isr: int
    compacted: bool
    deletes: bool
    leader_throttled: tuple[str, ...] = ()
    follower_throttled: tuple[str, ...] = ()
    tiered: bool = False
    """Segments go to the remote store, or went there (KIP-405). `log` determines whether more may
    go, and how much stays on the local disk."""
    tier_deleted_on_disable: bool = False
    """With tiering switched off, the data in the remote store is deleted (KIP-950)."""
    local_log: LocalLogThresholds = OFF
    """Minimum local log of a replica that is preferred as leader (KIP-1303)."""


def topic_settings(config: TopicConfig, node: NodeConfig) -> TopicSettings:
    """Return the settings of a topic with this effective configuration."""
    codec = _CODECS[config[keys_topic.COMPRESSION_TYPE]]
    rules = AppendRules(
        max_message_bytes=config[keys_topic.MAX_MESSAGE_BYTES],
        segment_bytes=config.segment_bytes,
        timestamp_type=_timestamp_type(config),
        timestamp_before_max_ms=config[keys_topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        timestamp_after_max_ms=config[keys_topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        compression=codec,
        compression_level=_compression_level(config, codec),
        compacted=config.is_compacted,
        always_walk=node[keys_kraftbox.KRAFTBOX_PRODUCE_VALIDATE_RECORDS],
        record_bytes_max=config[keys_topic.MAX_DECOMPRESSED_MESSAGE_BYTES],
        budget_bytes=node[keys_kraftbox.KRAFTBOX_PRODUCE_DECOMPRESSED_MAX_BYTES],
    )
    return TopicSettings(
        log=LogConfig.of(config),
        rules=rules,
        min_isr=config[keys_topic.MIN_INSYNC_REPLICAS],
        compacted=config.is_compacted,
        deletes=config.deletes_old,
        leader_throttled=tuple(config[keys_topic.LEADER_REPLICATION_THROTTLED_REPLICAS]),
        follower_throttled=tuple(config[keys_topic.FOLLOWER_REPLICATION_THROTTLED_REPLICAS]),
        tiered=node[keys_remote.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]
        and config[keys_topic.REMOTE_STORAGE_ENABLE],
        tier_deleted_on_disable=config[keys_topic.REMOTE_LOG_DELETE_ON_DISABLE],
        local_log=LocalLogThresholds(
            config[keys_topic.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_MS],
            config[keys_topic.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_BYTES],
        ),
    )


def tiered_topics(image: MetadataImage) -> list[str]:
    """Return the topics whose own values enable tiering, sorted."""
    key = keys_topic.REMOTE_STORAGE_ENABLE
    return sorted(
        name
        for (kind, name), values in image.configs.items()
        if kind == ConfigResourceType.TOPIC and values.get(key.name, "").strip().lower() == "true"
    )


def _timestamp_type(config: TopicConfig) -> TimestampType:
    if config[keys_topic.MESSAGE_TIMESTAMP_TYPE] == "LogAppendTime":
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def _compression_level(config: TopicConfig, codec: Codec | None) -> int | None:
    key = None if codec is None else _LEVELS.get(codec)
    return None if key is None else config[key]


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
        """Return every typed value in effect for `topic`."""
        overrides = self._image.configs.get((ConfigResourceType.TOPIC, topic))
        return self._defaults.with_overrides(overrides or {})

    def of(self, topic: str) -> TopicSettings:
        """Return the settings of `topic`, whether or not it exists."""
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
        """Apply the next image; return the topics whose settings may differ now, in order."""
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
