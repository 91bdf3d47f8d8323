"""Topic settings that the log uses, as one frozen value.

Names, defaults and meaning are those of Kafka's topic configs. The config engine has validated the
values, so this module does not check them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protocol.batch.records import RECORD_BYTES_MAX
from runtime.config import TopicConfig, keys_topic

UNLIMITED: Final = -1
FOLLOW_TOTAL_RETENTION: Final = -2
"""Value of `local.retention.*` that means: as `retention.*`."""
MAX_INT64: Final = 2**63 - 1
MAX_SEGMENT_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's storage settings; the field for `a.b.c` is `a_b_c`."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * 24 * 3_600_000
    local_retention_bytes: int = FOLLOW_TOTAL_RETENTION
    local_retention_ms: int = FOLLOW_TOTAL_RETENTION
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_copy_lag_ms: int = 0
    remote_copy_lag_bytes: int = UNLIMITED
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 24 * 3_600_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: str = "delete"
    refuse_rot: bool = False
    """If true, recovery truncates only what a crash may have left of the last writes, and refuses a
    log with other damage. If false, it truncates any invalid bytes, since other replicas have the
    records."""
    effective_segment_ms: int = field(init=False)
    """Age in ms at which a segment is rolled: early enough to be compacted in time (KIP-354)."""

    def __post_init__(self) -> None:
        limit_ms = self.segment_ms
        if self.compacted and self.max_compaction_lag_ms > 0:
            limit_ms = min(limit_ms, self.max_compaction_lag_ms)
        object.__setattr__(self, "effective_segment_ms", limit_ms)

    @classmethod
    def of(cls, topic: TopicConfig) -> LogConfig:
        """Create the log settings from a topic's configuration."""
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic[keys_topic.SEGMENT_MS],
            segment_jitter_ms=topic[keys_topic.SEGMENT_JITTER_MS],
            segment_index_bytes=topic[keys_topic.SEGMENT_INDEX_BYTES],
            index_interval_bytes=topic[keys_topic.INDEX_INTERVAL_BYTES],
            flush_messages=topic[keys_topic.FLUSH_MESSAGES],
            flush_ms=topic[keys_topic.FLUSH_MS],
            retention_bytes=topic[keys_topic.RETENTION_BYTES],
            retention_ms=topic[keys_topic.RETENTION_MS],
            local_retention_bytes=topic[keys_topic.LOCAL_RETENTION_BYTES],
            local_retention_ms=topic[keys_topic.LOCAL_RETENTION_MS],
            remote_storage_enable=topic[keys_topic.REMOTE_STORAGE_ENABLE],
            remote_log_copy_disable=topic[keys_topic.REMOTE_LOG_COPY_DISABLE],
            remote_copy_lag_ms=topic[keys_topic.REMOTE_COPY_LAG_MS],
            remote_copy_lag_bytes=topic[keys_topic.REMOTE_COPY_LAG_BYTES],
            max_message_bytes=topic[keys_topic.MAX_MESSAGE_BYTES],
            max_decompressed_message_bytes=topic[keys_topic.MAX_DECOMPRESSED_MESSAGE_BYTES],
            file_delete_delay_ms=topic[keys_topic.FILE_DELETE_DELAY_MS],
            delete_retention_ms=topic[keys_topic.DELETE_RETENTION_MS],
            min_compaction_lag_ms=topic[keys_topic.MIN_COMPACTION_LAG_MS],
            max_compaction_lag_ms=topic[keys_topic.MAX_COMPACTION_LAG_MS],
            min_cleanable_dirty_ratio=topic[keys_topic.MIN_CLEANABLE_DIRTY_RATIO],
            cleanup_policy=",".join(topic[keys_topic.CLEANUP_POLICY]),
        )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def copies(self) -> bool:
        """True if closed segments are copied to the remote store.

        If copying is disabled, or the topic is not tiered, the log start follows the first local
        segment (KIP-950).
        """
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def effective_local_retention_ms(self) -> int:
        if self.local_retention_ms == FOLLOW_TOTAL_RETENTION:
            return self.retention_ms
        return self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        if self.local_retention_bytes == FOLLOW_TOTAL_RETENTION:
            return self.retention_bytes
        return self.local_retention_bytes

    @property
    def effective_copy_lag_ms(self) -> int:
        """Age in ms from which a closed segment is copied; -1 without such a limit (KIP-1241)."""
        if self.remote_copy_lag_ms == UNLIMITED:
            return self.effective_local_retention_ms
        return self.remote_copy_lag_ms

    @property
    def effective_copy_lag_bytes(self) -> int:
        """Bytes behind a closed segment from which it is copied; -1 without such a limit."""
        if self.remote_copy_lag_bytes == UNLIMITED:
            return self.effective_local_retention_bytes
        return self.remote_copy_lag_bytes
