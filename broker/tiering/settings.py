"""Settings of tiered storage, from a node's configuration (KIP-405, KIP-950, KIP-956, KIP-1018).

Settings that are dynamic in Kafka are dynamic here: each change creates a complete new object. A
component that keeps an older object has an older configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runtime.config import ConfigError, NodeConfig, keys_remote
from runtime.config.schema import NodeKey
from storage.objects import StoreSettings

TOPIC_BASED: Final = keys_remote.REMOTE_LOG_METADATA_MANAGER_CLASS_NAME.default


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """Settings for the creation and use of `__remote_log_metadata`."""

    partitions: int = 50
    """Used only when the topic is created."""
    replication_factor: int = 3
    min_isr: int = 2
    retention_ms: int = -1
    consume_wait_ms: int = 120_000
    """How long a writer waits for its own record to be read back."""
    listener: str
    """The listener for requests to the topic's leaders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """A rate over `windows` windows of `window_seconds` each."""

    bytes_per_second: int
    windows: int
    window_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Settings of passes over partitions. The limits `*_at_once` correspond to Kafka's thread
    pools."""

    interval_ms: int
    backoff_ms: int
    backoff_max_ms: int
    jitter: float
    copies_at_once: int
    expirations_at_once: int
    builds_at_once: int
    """Limit for followers that begin behind the tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """Settings of reads from the tier."""

    at_once: int
    pending_max: int
    """Limit for reads that wait for their turn."""
    fetch_wait_ms: int
    """Time after which a fetch is answered without a partition's remote data."""
    list_offsets_timeout_ms: int
    """Timeout for ListOffsets requests that contain none."""
    index_cache_bytes: int
    index_cache_ttl_ms: int
    """-1: an index stays until space is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """All settings of tiered storage."""

    store: StoreSettings
    metadata: MetadataTopicSettings
    tasks: TaskSettings
    reads: ReadSettings
    copy_quota: QuotaSettings
    fetch_quota: QuotaSettings

    @classmethod
    def of(cls, node: NodeConfig) -> RemoteSettings:
        """Return the settings of a node. Raises ConfigError if they are invalid for a tier; the
        message names the key to set."""
        _refuse_classes(node)
        store_prefix = node[keys_remote.REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX]
        return cls(
            store=StoreSettings.of(_below(node, store_prefix), prefix=store_prefix),
            metadata=_metadata(node),
            tasks=TaskSettings(
                interval_ms=node[keys_remote.REMOTE_LOG_MANAGER_TASK_INTERVAL_MS],
                backoff_ms=node[keys_remote.REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS],
                backoff_max_ms=node[keys_remote.REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS],
                jitter=node[keys_remote.REMOTE_LOG_MANAGER_TASK_RETRY_JITTER],
                copies_at_once=node[keys_remote.REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE],
                expirations_at_once=node[
                    keys_remote.REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE
                ],
                builds_at_once=node[keys_remote.REMOTE_LOG_MANAGER_FOLLOWER_THREAD_POOL_SIZE],
            ),
            reads=ReadSettings(
                at_once=node[keys_remote.REMOTE_LOG_READER_THREADS],
                pending_max=node[keys_remote.REMOTE_LOG_READER_MAX_PENDING_TASKS],
                fetch_wait_ms=node[keys_remote.REMOTE_FETCH_MAX_WAIT_MS],
                list_offsets_timeout_ms=node[keys_remote.REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS],
                index_cache_bytes=node[keys_remote.REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES],
                index_cache_ttl_ms=node[keys_remote.REMOTE_LOG_INDEX_FILE_CACHE_TTL_MS],
            ),
            copy_quota=QuotaSettings(
                bytes_per_second=node[keys_remote.REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND],
                windows=node[keys_remote.REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM],
                window_seconds=node[keys_remote.REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS],
            ),
            fetch_quota=QuotaSettings(
                bytes_per_second=node[keys_remote.REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND],
                windows=node[keys_remote.REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM],
                window_seconds=node[keys_remote.REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS],
            ),
        )


def _refuse_classes(node: NodeConfig) -> None:
    """Refuse Java classes, which cannot run here: an operator who names one expects its
    behaviour."""
    store: NodeKey[str | None] = keys_remote.REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME
    if node[store]:
        prefix = node[keys_remote.REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX]
        raise ConfigError(
            store.name, node[store], f"must be empty: set {prefix}url to where the segments go"
        )
    metadata = keys_remote.REMOTE_LOG_METADATA_MANAGER_CLASS_NAME
    if node[metadata] != TOPIC_BASED:
        raise ConfigError(metadata.name, node[metadata], f"must be empty or {TOPIC_BASED}")


def _metadata(node: NodeConfig) -> MetadataTopicSettings:
    prefix = node[keys_remote.REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX]
    given = _below(node, prefix)
    errors: list[ConfigError] = []

    def number(name: str, default: int, least: int) -> int:
        text = given.get(name, str(default)).strip()
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and int(text) >= least:
            return int(text)
        allowed = f"must be an integer of at least {least}"
        errors.append(ConfigError(prefix + name, text, allowed, is_open=True))
        return default

    settings = MetadataTopicSettings(
        partitions=number("remote.log.metadata.topic.num.partitions", 50, 1),
        replication_factor=number("remote.log.metadata.topic.replication.factor", 3, 1),
        min_isr=number("remote.log.metadata.topic.min.isr", 2, 1),
        retention_ms=number("remote.log.metadata.topic.retention.ms", -1, -1),
        consume_wait_ms=number("remote.log.metadata.consume.wait.ms", 120_000, 0),
        listener=node[keys_remote.REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME]
        or node.inter_broker_listener_name,
    )
    if errors:
        raise ConfigError.join(errors)
    return settings


def _below(node: NodeConfig, prefix: str) -> Mapping[str, str]:
    """Return the values given under `prefix`, by the rest of their names."""
    return {
        name.removeprefix(prefix): text
        for name, text in node.given.items()
        if name.startswith(prefix)
    }
