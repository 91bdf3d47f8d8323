"""Settings of the periodic work on logs, from the configuration of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from runtime.config import NodeConfig, keys_log, keys_replication
from storage.log.log import PRODUCER_ID_EXPIRATION_MS

FLUSH_CHECK_MS: Final = 1_000
"""Interval of checks for logs to flush, unless log.flush.scheduler.interval.ms is set. Its default
means never, and then a topic's flush.ms would have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """The node's settings for its logs; fields are named after Kafka's keys if there are any."""

    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = FLUSH_CHECK_MS
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    producer_id_expiration_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, node: NodeConfig) -> LogManagerSettings:
        flush = keys_log.LOG_FLUSH_SCHEDULER_INTERVAL_MS
        return cls(
            flush_offset_checkpoint_interval_ms=node[
                keys_log.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS
            ],
            flush_start_offset_checkpoint_interval_ms=node[
                keys_log.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS
            ],
            high_watermark_checkpoint_interval_ms=node[
                keys_replication.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS
            ],
            retention_check_interval_ms=node[keys_log.LOG_RETENTION_CHECK_INTERVAL_MS],
            flush_scheduler_interval_ms=node[flush] if node.is_set(flush) else FLUSH_CHECK_MS,
            producer_id_expiration_ms=node[keys_log.PRODUCER_ID_EXPIRATION_MS],
            producer_id_expiration_check_interval_ms=node[
                keys_log.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS
            ],
        )
