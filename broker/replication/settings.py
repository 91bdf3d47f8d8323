"""Settings of a broker's replication, from its configuration."""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.fetching.fetcher import FetcherSettings
from runtime.config import NodeConfig, keys_kraftbox, keys_remote, keys_replication


class ReplicationSettings(NamedTuple):
    """Settings of replication. Only `fetchers_per_leader` and `skips_tiered` may change while the
    broker runs. `throttle_window_*` are the windows over which throttled replicas are measured."""

    node_id: int
    inter_broker_listener: str
    lag_max_ms: int
    answer_timeout_ms: int
    fetchers_per_leader: int
    fetcher: FetcherSettings
    throttle_window_count: int
    throttle_window_ms: float
    local_log_report_interval_ms: int
    skips_tiered: bool
    """Empty replicas do not copy what the tier has (KIP-1023)."""

    @classmethod
    def of(cls, node: NodeConfig) -> ReplicationSettings:
        return cls(
            node_id=node.node_id,
            inter_broker_listener=node.inter_broker_listener_name,
            lag_max_ms=node[keys_replication.REPLICA_LAG_TIME_MAX_MS],
            answer_timeout_ms=node[keys_replication.REPLICA_SOCKET_TIMEOUT_MS],
            fetchers_per_leader=node[keys_replication.NUM_REPLICA_FETCHERS],
            fetcher=FetcherSettings(
                wait_max_ms=node[keys_replication.REPLICA_FETCH_WAIT_MAX_MS],
                min_bytes=node[keys_replication.REPLICA_FETCH_MIN_BYTES],
                response_max_bytes=node[keys_replication.REPLICA_FETCH_RESPONSE_MAX_BYTES],
                max_bytes=node[keys_replication.REPLICA_FETCH_MAX_BYTES],
                backoff_ms=node[keys_replication.REPLICA_FETCH_BACKOFF_MS],
            ),
            throttle_window_count=node[keys_replication.REPLICATION_QUOTA_WINDOW_NUM],
            throttle_window_ms=1000.0
            * node[keys_replication.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS],
            local_log_report_interval_ms=node[keys_kraftbox.KRAFTBOX_LOCAL_LOG_REPORT_INTERVAL_MS],
            skips_tiered=node[keys_remote.FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE],
        )
