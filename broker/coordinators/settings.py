"""The group coordinator's settings, made from the node's configuration."""

from __future__ import annotations

from broker.coordinators.group.config import GroupConfig
from runtime.config import NodeConfig


def group_config(node: NodeConfig) -> GroupConfig:
    """Kafka's keys, with minutes turned into milliseconds."""
    return GroupConfig(
        min_session_timeout_ms=node["group.min.session.timeout.ms"],
        max_session_timeout_ms=node["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=node["group.initial.rebalance.delay.ms"],
        max_size=node["group.max.size"],
        offset_metadata_max_bytes=node["offset.metadata.max.bytes"],
        offsets_retention_ms=node["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=node["offsets.retention.check.interval.ms"],
        offsets_commit_timeout_ms=node["offsets.commit.timeout.ms"],
    )
