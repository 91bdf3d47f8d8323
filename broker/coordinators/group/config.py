"""Settings of the group coordinator, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.compression import Codec
from runtime.config import NodeConfig, keys_group_coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of the group coordinator. Defaults are Kafka's.

    - group.min.session.timeout.ms, group.max.session.timeout.ms: bounds of a member's session
      timeout.
    - group.initial.rebalance.delay.ms: how long an empty group waits for more first members.
    - group.max.size: maximum number of members of one group.
    - offset.metadata.max.bytes: counted in UTF-16 units, as in Kafka, despite its name.
    - offsets.retention.minutes: here in milliseconds.
    - offsets.retention.check.interval.ms: time between two searches for expired offsets.
    - offsets.commit.timeout.ms: how long a caller waits for its records to be committed.
    - new_member_join_timeout_ms (Kafka has no key for it): a member that joins for the first time
      cannot heartbeat while the join is waiting. After this time it counts as gone (KAFKA-9752).
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    new_member_join_timeout_ms: int = 300_000
    offsets_topic_codec: Codec = Codec.NONE

    @classmethod
    def of(cls, node: NodeConfig) -> GroupConfig:
        return cls(
            min_session_timeout_ms=node[keys_group_coordinator.GROUP_MIN_SESSION_TIMEOUT_MS],
            max_session_timeout_ms=node[keys_group_coordinator.GROUP_MAX_SESSION_TIMEOUT_MS],
            initial_rebalance_delay_ms=node[
                keys_group_coordinator.GROUP_INITIAL_REBALANCE_DELAY_MS
            ],
            max_size=node[keys_group_coordinator.GROUP_MAX_SIZE],
            offset_metadata_max_bytes=node[keys_group_coordinator.OFFSET_METADATA_MAX_BYTES],
            offsets_retention_ms=node[keys_group_coordinator.OFFSETS_RETENTION_MINUTES] * 60_000,
            offsets_retention_check_interval_ms=node[
                keys_group_coordinator.OFFSETS_RETENTION_CHECK_INTERVAL_MS
            ],
            offsets_commit_timeout_ms=node[keys_group_coordinator.OFFSETS_COMMIT_TIMEOUT_MS],
            offsets_topic_codec=Codec(node[keys_group_coordinator.OFFSETS_TOPIC_COMPRESSION_CODEC]),
        )
