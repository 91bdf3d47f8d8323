"""The group coordinator's settings, made from the node's configuration."""

from __future__ import annotations

from broker.coordinators.group.config import GroupConfig
from runtime.config import NodeConfig, keys_groups


def group_config(node: NodeConfig) -> GroupConfig:
    """Kafka's keys, with minutes turned into milliseconds."""
    return GroupConfig(
        min_session_timeout_ms=node[keys_groups.GROUP_MIN_SESSION_TIMEOUT_MS],
        max_session_timeout_ms=node[keys_groups.GROUP_MAX_SESSION_TIMEOUT_MS],
        initial_rebalance_delay_ms=node[keys_groups.GROUP_INITIAL_REBALANCE_DELAY_MS],
        max_size=node[keys_groups.GROUP_MAX_SIZE],
        offset_metadata_max_bytes=node[keys_groups.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=node[keys_groups.OFFSETS_RETENTION_MINUTES] * 60_000,
        offsets_retention_check_interval_ms=node[keys_groups.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
        offsets_commit_timeout_ms=node[keys_groups.OFFSETS_COMMIT_TIMEOUT_MS],
    )
